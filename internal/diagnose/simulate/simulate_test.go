package simulate

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
)

// TestEnvoy evaluates calls on hand-written Envoy resources. The expected results come from Envoy's
// documentation of each message, and not from the simulator.
func TestEnvoy(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { runFile(t, file) })
	}
}

type callCase struct {
	Name  string
	Call  Call
	Want  any
	Error string
}

func runFile(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	require.NoError(t, err)
	var w *World
	for _, f := range archive.Files {
		switch f.Name {
		case "world.yaml":
			w, err = Parse(f.Data)
			require.NoError(t, err)
		case "calls.yaml":
			var cases []callCase
			require.NoError(t, yaml.Unmarshal(f.Data, &cases))
			require.NotEmpty(t, cases)
			for _, c := range cases {
				t.Run(c.Name, func(t *testing.T) { runCase(t, w, c) })
			}
		case "check.yaml":
			var want []string
			require.NoError(t, yaml.Unmarshal(f.Data, &want))
			checkProblems(t, w.Check(), want)
		default:
			t.Fatalf("unknown part %s", f.Name)
		}
	}
}

func runCase(t *testing.T, w *World, c callCase) {
	res, err := w.Call(c.Call)
	if c.Error != "" {
		require.ErrorContains(t, err, c.Error)
		return
	}
	require.NoError(t, err)
	if diff := res.Mismatches(c.Want); len(diff) > 0 {
		t.Errorf("%v\n--- result\n%s", diff, res)
	}
}

// checkProblems checks that each problem contains its text, in order.
func checkProblems(t *testing.T, got, want []string) {
	t.Helper()
	require.Len(t, got, len(want), "%q", got)
	for i := range want {
		require.Contains(t, got[i], want[i])
	}
}

func TestResultTextIsStable(t *testing.T) {
	r := &Result{
		Listener: "0.0.0.0_80",
		Clusters: map[string]float64{"b": 10, "a": 90},
		Timeout:  "none",
	}
	require.Equal(t, "listener: 0.0.0.0_80\nclusters:\n    a: 90\n    b: 10\ntimeout: none\n", r.String())
}

func TestMismatchesAreStrictAboutShares(t *testing.T) {
	r := &Result{Status: 404, Clusters: map[string]float64{"a": 90, "b": 10}}
	require.Empty(t, r.Mismatches(map[string]any{"status": 404}))
	require.NotEmpty(t, r.Mismatches(map[string]any{"clusters": map[string]any{"a": 90}}), "b receives nothing")
	require.NotEmpty(t, r.Mismatches(map[string]any{"status": nil}))
	require.NotEmpty(t, r.Mismatches(map[string]any{"route": "x"}))
}

// TestCheck checks what Envoy would refuse.
func TestCheck(t *testing.T) {
	w, err := Parse([]byte(`
listeners:
- {name: a, address: {socketAddress: {address: 10.0.0.1, portValue: 80}}}
- name: a
  address: {socketAddress: {address: 10.0.0.1, portValue: 80}}
  filterChains:
  - {name: one, filterChainMatch: {serverNames: [x.org]}, filters: [{name: f, typedConfig: &hcm {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, statPrefix: x, rds: {routeConfigName: none, configSource: {ads: {}}}}}]}
  - {name: two, filterChainMatch: {serverNames: [x.org]}}
  - {name: three, filterChainMatch: {serverNames: ["a*.org"]}}
routes:
- name: r
  virtualHosts:
  - {name: v, domains: [x, X], routes: [{match: {prefix: /}, route: {cluster: gone}}]}
  - {name: v, domains: [z], routes: [{match: {prefix: /}, route: {prefixRewrite: "/\n"}}]}
clusters:
- {name: c, type: EDS, edsClusterConfig: {edsConfig: {ads: {}}}}
`))
	require.NoError(t, err)
	checkProblems(t, w.Check(), []string{
		"listener a has no filter chain",
		`listener "a": duplicate`,
		`listener address "10.0.0.1:80": duplicate`,
		`filter chain "two": another one has the same match`,
		`bad server name "a*.org"`,
		`route configuration "none": missing`,
		"the last HTTP filter is not the router",
		`cluster c: endpoints "c": missing`,
		"route configuration r: invalid RouteConfiguration",
		`domain "x": duplicate`,
		`unknown cluster "gone"`,
		`virtual host "v": duplicate`,
	})
}
