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

// TestChaos is the short form: six Envoys, two control planes and an API server, with the seed of the day, so that each
// day's tests try other changes and faults.
func TestChaos(t *testing.T) {
	labtest.Temporary(t)
	server, err := kubetest.Binary()
	require.NoError(t, err)
	o := chaos.Options{APIServer: []string{server}, Time: 20 * time.Second, Proxies: 6, Seed: uint64(time.Now().YearDay()), Dir: t.TempDir()}
	o.Programs, o.Envoy = labtest.Sidecars(t)
	if labtest.Full() {
		o.Time, o.Proxies = 3*time.Minute, 12
	}
	t.Logf("seed %d: repeat with moonsail-lab chaos --source kube --time %s --proxies %d --seed %[1]d", o.Seed, o.Time, o.Proxies)
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
