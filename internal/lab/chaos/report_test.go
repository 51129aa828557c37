package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
)

func TestReport(t *testing.T) {
	r := &Report{
		Seed: 5, Time: 60, Asked: 6, Shape: ShapeOf(6, true), Faults: map[string]int{killPlane: 1}, Traffic: map[string]*counts{protoTCP: {3, map[string]int{"v1": 3}}},
		Plan:       append(NewPlan(5, ShapeOf(6, true), time.Minute), Action{At: time.Minute, What: killServer, Target: "server"}),
		Events:     []event{{Action: Action{What: killPlane, Target: "plane/1", For: time.Second}, Began: 3, Took: 2}},
		Violations: []violation{{Offset: 4, Kind: "request", Subject: "TCP c1 -> s1", Text: "answered <v2>"}}, More: 2,
	}
	dir := t.TempDir()
	require.NoError(t, r.Save(dir))
	html, err := os.ReadFile(filepath.Join(dir, experiment.HTMLFile))
	require.NoError(t, err)
	for _, part := range []string{"3 violations", "kill control plane plane/1 for 1s", "answered &lt;v2&gt;", "<rect"} {
		require.Contains(t, string(html), part)
	}
	b, err := os.ReadFile(filepath.Join(dir, experiment.JSONFile))
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, r, &back)
	var o Options
	require.NoError(t, o.ReadPlan(filepath.Join(dir, experiment.JSONFile)))
	require.Equal(t, Options{Plan: r.Plan, Seed: 5, Proxies: 6, Time: time.Minute}, o)
	require.ErrorContains(t, o.Check(), "use the --source", "the plan needs an API server")
	o.APIServer = []string{"kube"}
	require.NoError(t, o.Check())
}

func TestCompareDumps(t *testing.T) {
	dump := func(address, updated string) resources {
		d, err := parseDump([]byte(`{"configs": [
			{"dynamic_active_clusters": [{"version_info": "` + updated + `", "cluster": {"name": "web"}, "last_updated": "` + updated + `"}]},
			{"dynamic_endpoint_configs": [{"endpoint_config": {"cluster_name": "web", "endpoints": [{"lb_endpoints": ["` + address + `", "b"]}]}}]}]}`))
		require.NoError(t, err)
		return d
	}
	was := map[string]resources{"c1": dump("a", "1")}
	out, n := compareDumps(was, map[string]resources{"c1": dump("a", "2")})
	require.Empty(t, out)
	require.Equal(t, 2, n)
	out, _ = compareDumps(was, map[string]resources{"c1": dump("c", "2")})
	require.Len(t, out, 1)
	require.Contains(t, out[0], "c1 has another dynamic_endpoint_configs web")
	out, _ = compareDumps(was, map[string]resources{"c1": {}})
	require.Len(t, out, 2)
	require.Contains(t, out[0], "a new one does not")
}
