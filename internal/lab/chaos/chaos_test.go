package chaos_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/chaos"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// shortSeed has faults of control planes, sidecars and connections. In CI a failure must be one of the change under test.
const shortSeed = 3

// TestChaos is the short form: six Envoys and two control planes that read files, with a fixed seed. In full it has 12
// Envoys and an API server, and the seed of the day, so that each day's tests try other changes and faults.
func TestChaos(t *testing.T) {
	labtest.Temporary(t)
	o := chaos.Options{Time: 20 * time.Second, Proxies: 6, Seed: shortSeed, Dir: t.TempDir()}
	o.Programs, o.Envoy = labtest.Sidecars(t)
	source := "files"
	if labtest.Full() {
		server, err := kubetest.Binary()
		require.NoError(t, err)
		source, o.APIServer = "kube", []string{server}
		o.Time, o.Proxies, o.Seed = 3*time.Minute, 12, uint64(time.Now().YearDay())
	}
	t.Logf("repeat with moonsail-lab chaos --source %s --time %s --proxies %d --seed %d", source, o.Time, o.Proxies, o.Seed)
	r, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	for _, v := range r.Violations {
		t.Errorf("%+v", v)
	}
	require.Zero(t, r.More)
	require.Positive(t, r.FaultCount())
	require.Positive(t, r.ACKs.Checked)
	require.Positive(t, r.Compared)
	require.Len(t, r.Traffic, 5, "protocols")
	t.Logf("%d requests, %d changed objects, %d faults, %d ACKed; quiet after %.1f s", r.Requests(), r.Changes, r.FaultCount(), r.ACKs.N, r.QuietAfter)
	require.Empty(t, labtest.LeftOver(t))
}
