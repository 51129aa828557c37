package propagation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

func TestParseMeshes(t *testing.T) {
	m, err := ParseMeshes([]string{" 5x10", "50x500"})
	require.NoError(t, err)
	require.Equal(t, []meshfiles.Shape{{Services: 5, Proxies: 10, Bystanders: 2}, {Services: 50, Proxies: 500, Bystanders: 10}}, m)
	for _, bad := range [][]string{{"5x10", "5x10"}, {"500x1000", "50x500"}} {
		_, err := ParseMeshes(bad)
		require.ErrorContains(t, err, bad[1]+" after "+bad[0]+": list each mesh once, in ascending order")
	}
	_, err = ParseMeshes(nil)
	require.ErrorContains(t, err, "no mesh")
	for _, bad := range []string{"", "5", "x", "0x5", "5x-1", "axb"} {
		_, err := ParseMeshes([]string{bad})
		require.ErrorContains(t, err, "SERVICESxPROXIES", bad)
	}
}

func TestChoose(t *testing.T) {
	all, err := choose(nil)
	require.NoError(t, err)
	require.Len(t, all, len(Scenarios()))
	some, err := choose([]string{"route", "endpoint"})
	require.NoError(t, err)
	require.Equal(t, []string{"endpoint", "route"}, []string{some[0].Name, some[1].Name}, "in the order in which they run")
	_, err = choose([]string{"rout"})
	require.ErrorContains(t, err, `"rout": use connect-storm, endpoint`)
}

// TestCheckScenarios checks that a scenario that cannot be measured is an error if the user named it, and is left out
// otherwise.
func TestCheckScenarios(t *testing.T) {
	file, kube := session.Config{Source: session.SourceFile}, session.Config{Source: session.SourceKube}
	kubeExternal := session.Config{Source: session.SourceKube, External: "1.1.1.1:15010"}
	require.NoError(t, (&Options{Config: file}).CheckScenarios(), "expedia and airbnb are left out")
	require.NoError(t, (&Options{Config: kube, Peer: &session.Peer{Name: "istiod"}}).CheckScenarios(), "locks runs with our control plane only")
	require.NoError(t, (&Options{Config: kube, Scenarios: []string{"expedia", "airbnb"}, Peer: &session.Peer{Name: "istiod"}}).CheckScenarios())
	for want, o := range map[string]Options{
		"expedia: needs --source kube":          {Scenarios: []string{"route", "expedia"}},
		"use --target NAME=1.1.1.1":             {Scenarios: []string{"airbnb"}, Config: kubeExternal},
		"locks: excludes --target":              {Scenarios: []string{"locks"}, Config: kubeExternal},
		"reconnect-storm: excludes --target":    {Scenarios: []string{"reconnect-storm"}, Config: session.Config{External: "1.1.1.1:15010"}},
		"locks: cannot be compared with istiod": {Scenarios: []string{"endpoint", "locks"}, Config: kube, Peer: &session.Peer{Name: "istiod"}},
		`unknown scenario "nothing"`:            {Scenarios: []string{"nothing"}},
	} {
		require.ErrorContains(t, o.CheckScenarios(), want)
	}
	external := &Options{Config: session.Config{External: "1.1.1.1:15010"}, Meshes: []meshfiles.Shape{{}}}
	require.Equal(t, "left out with --target: reconnect-storm, growth, memory, locks, airbnb, expedia", external.leftOut(Scenarios()))
	require.Empty(t, (&Options{Config: file}).leftOut(Scenarios()), "expedia and airbnb are not expected without an API server")
}
