package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
)

var testAddresses = Addresses{Subnet: 10, ServicePort: 8080, MeshPort: 9080, AppPort: 9090}

// read writes manifests to a directory and reads them as the control plane does.
func read(t *testing.T, files ...manifest) *file.Tree {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		require.NoError(t, write(dir, f))
	}
	tree, err := file.Analyze(dir, config.Decoder{})
	require.NoError(t, err)
	return tree
}

func TestManifestsHaveNoProblems(t *testing.T) {
	for _, n := range []int{MinWorkloads, DefaultWorkloads, 40} {
		shop := Shop(n)
		files := append(initialManifests(testAddresses, shop), faultManifest(), canaryManifest(0, 100),
			endpointsManifest(testAddresses, catalog, shop, "catalog-1"))
		tree := read(t, files...)
		require.Empty(t, tree.Problems)
		require.Empty(t, analyze.Check(tree.Objects, "cluster.local"))
	}
}

func TestManifestsDescribeTheShop(t *testing.T) {
	shop := Shop(DefaultWorkloads)
	tree := read(t, initialManifests(testAddresses, shop)...)
	pods, sidecars, endpoints := map[string]string{}, 0, map[string]int{}
	for _, o := range tree.Objects {
		switch o := o.(type) {
		case *model.Workload:
			pods[o.Name] = o.Address()
		case *model.Sidecar:
			sidecars++
			require.Equal(t, testAddresses.ServicePort, uint16(o.Egress[0].Port.Number))
			require.Equal(t, pods[o.Name], o.Egress[0].Bind)
			require.Equal(t, o.Name == "shopper-1", len(o.Ingress) == 0)
		case *model.EndpointSlice:
			endpoints[o.Service] = len(o.Members)
		}
	}
	require.Len(t, pods, len(shop))
	require.Equal(t, len(shop), sidecars)
	require.Equal(t, map[string]int{frontend: 2, catalog: 2, cart: 2, reviews: 3, ratings: 2}, endpoints)
	require.Equal(t, "127.0.10.1", pods["shopper-1"])
}

func TestLeavingEndpointsAreNotReady(t *testing.T) {
	tree := read(t, endpointsManifest(testAddresses, reviews, Shop(MinWorkloads), "reviews-v3-1"))
	slice := tree.Objects[0].(*model.EndpointSlice)
	for _, m := range slice.Members {
		require.Equal(t, m.Pod == "reviews-v3-1", m.Terminating)
		require.Equal(t, m.Pod != "reviews-v3-1", m.Ready)
	}
	require.Len(t, slice.Members, 3)
}

func TestBrokenManifestIsRefused(t *testing.T) {
	tree := read(t, brokenManifest())
	require.True(t, tree.Problems.HasErrors())
	require.Empty(t, tree.Objects)
	require.Equal(t, canaryManifest(0, 100).Path, brokenManifest().Path, "it must replace the file in force")
}

func TestWriteIsAtomic(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, write(dir, canaryManifest(90, 10)))
	before, err := os.Stat(filepath.Join(dir, "routing", "reviews.yaml"))
	require.NoError(t, err)
	require.NoError(t, write(dir, canaryManifest(50, 50)))
	after, err := os.Stat(filepath.Join(dir, "routing", "reviews.yaml"))
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after), "renamed, not rewritten")
	content, err := os.ReadFile(filepath.Join(dir, "routing", "reviews.yaml"))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(content), "weight: 50"))
	left, err := os.ReadDir(filepath.Join(dir, "routing"))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestShop(t *testing.T) {
	for n := MinWorkloads; n <= MaxWorkloads; n++ {
		list := Shop(n)
		require.Len(t, list, n)
		names := map[string]bool{}
		for i, w := range list {
			require.False(t, names[w.Name], w.Name)
			names[w.Name] = true
			require.Equal(t, i+1, w.Number)
		}
		next := another(list, catalog)
		require.False(t, names[next.Name])
		require.Equal(t, n+1, next.Number)
		require.Less(t, next.Number, claimNumber)
	}
	require.Empty(t, Workload{App: reviews, Version: "v1"}.Calls())
	require.Equal(t, []string{ratings}, Workload{App: reviews, Version: "v2"}.Calls())
}
