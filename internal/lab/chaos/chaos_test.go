package chaos_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// TestFaultsAreInjected executes a plan with faults whose effect can be measured.
func TestFaultsAreInjected(t *testing.T) {
	labtest.Temporary(t)
	dir := t.TempDir()
	o := chaos.Options{Time: chaos.MinTime, Proxies: chaos.MinProxies, Dir: dir}
	o.Programs, o.Envoy = labtest.Sidecars(t)
	const ms = time.Millisecond
	o.Plan = []chaos.Action{
		{At: 100 * ms, What: "upgrade control plane", Target: "plane/1", For: time.Second},
		{At: 200 * ms, What: "disconnect proxy", Target: "proxy/c1", For: 3 * time.Second},
		{At: 300 * ms, What: "write", Target: "refusal/r1", State: "unacceptable"},
		{At: 400 * ms, What: "write", Target: "route/s1", State: "v1"},
		{At: 4 * time.Second, What: "lossy proxy", Target: "proxy/c1", For: 5 * time.Second},
		{At: 5 * time.Second, What: "write", Target: "route/s1", State: "v2"},
		{At: 6 * time.Second, What: "write", Target: "refusal/r1", State: "unacceptable"},
		{At: 7 * time.Second, What: "write", Target: "endpoints/s1", State: "v2"},
	}
	r, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, r.Violations)
	effects := map[string]string{}
	for _, e := range r.Events {
		effects[e.What] = e.Effect
	}
	require.Regexp(t, `--xds-transport grpc .*; now .* serve --xds-addr`, effects["upgrade control plane"])
	require.Regexp(t, `^[1-9]\d* connections were refused$`, effects["disconnect proxy"])
	require.Regexp(t, `^[1-9]\d* reads were late$`, effects["lossy proxy"])
	var logs []byte
	for _, plane := range []string{"1", "2"} {
		b, err := os.ReadFile(filepath.Join(dir, "logs", "control-plane-"+plane+".log"))
		require.NoError(t, err)
		logs = append(logs, b...)
	}
	require.Contains(t, string(logs), "proxy refused configuration")
}

// TestCertificatesExpire executes a plan in which the certificate of a client expires while the CA is away.
func TestCertificatesExpire(t *testing.T) {
	labtest.Long(t)
	labtest.Temporary(t)
	o := chaos.Options{Time: 75 * time.Second, Proxies: chaos.MinProxies}
	o.Programs, o.Envoy = labtest.Sidecars(t)
	o.Plan = []chaos.Action{{At: time.Second, What: "expire certificate", Target: "proxy/c1", For: 3 * time.Second}}
	r, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, r.Violations)
	effect := regexp.MustCompile(`^[1-9]\d* connections were refused; the certificate had expired for (\S+) s`).FindStringSubmatch(r.Events[0].Effect)
	require.NotEmpty(t, effect, r.Events[0].Effect)
	expired, err := strconv.ParseFloat(effect[1], 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, expired, o.Plan[0].For.Seconds())
	require.Positive(t, r.Traffic["TCP"].Answers["denied"], "connections that the server's sidecar refused: no policy does")
}

// TestRootsRotate executes a plan in which the mesh's root is replaced while control planes are killed. No request fails.
func TestRootsRotate(t *testing.T) {
	labtest.Long(t)
	server, err := kubetest.Binary()
	require.NoError(t, err)
	for name, source := range map[string][]string{"files": nil, "API server": {server}} {
		t.Run(name, func(t *testing.T) {
			labtest.Temporary(t)
			o := chaos.Options{Time: chaos.MinTime, Proxies: chaos.MinProxies, APIServer: source}
			o.Programs, o.Envoy = labtest.Sidecars(t)
			o.Plan = []chaos.Action{
				{At: time.Second, What: "rotate roots", Target: "roots"},
				{At: 5 * time.Second, What: "kill control plane", Target: "plane/1", For: 5 * time.Second},
				{At: 8 * time.Second, What: "kill agent", Target: "proxy/c1"},
			}
			r, err := chaos.Run(t.Context(), o)
			require.NoError(t, err)
			require.Empty(t, r.Violations)
			require.Equal(t, "rotate roots", r.Events[0].What, "events are in order of their beginning")
			require.Regexp(t, `^step 1 .* step 2 .* step 3 reached all sidecars after \d+ s$`, r.Events[0].Effect)
			t.Log(r.Events[0].Effect)
		})
	}
}
