package meshfiles

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
)

func newMesh(t *testing.T, s Shape) (*Mesh, *Directory) {
	tmp := t.TempDir()
	d, err := NewDirectory(filepath.Join(tmp, "mesh"), filepath.Join(tmp, "staging"))
	require.NoError(t, err)
	m, err := New(d, s)
	require.NoError(t, err)
	return m, d
}

// All written objects must be valid: the lab would not measure what a control plane refuses.
func TestMeshIsValid(t *testing.T) {
	for _, shape := range []Shape{{Services: 3, Proxies: 7, Bystanders: 2}, {Services: 9, Proxies: 4, Seen: 2, Replicas: 1}} {
		m, dir := newMesh(t, shape)
		for _, change := range []func() (Change, error){
			func() (Change, error) { return m.ReplaceEndpoint(1) },
			func() (Change, error) { return m.ReplaceEndpoints(1) },
			func() (Change, error) { return m.ChangeRoute(1) },
			func() (Change, error) { return m.SetRule(1) },
			func() (Change, error) { return m.AddService("new") },
		} {
			c, err := change()
			require.NoError(t, err)
			require.NotEmpty(t, c.Wants)
			require.NoError(t, c.Apply())
		}
		files, err := filepath.Glob(filepath.Join(dir.dir, "*.yaml"))
		require.NoError(t, err)
		require.Greater(t, len(files), 2*shape.Services)
		for _, f := range files {
			checkFile(t, f)
		}
		c, err := m.RemoveService("new")
		require.NoError(t, err)
		require.NoError(t, c.Apply())
		require.NoFileExists(t, filepath.Join(dir.dir, "new.yaml"))
		_, err = m.RemoveService("new")
		require.Error(t, err)
		require.NoError(t, dir.Clear())
		left, err := os.ReadDir(dir.dir)
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoDirExists(t, dir.staging)
	}
}

func checkFile(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, doc := range bytes.Split(b, []byte("---\n")) {
		object, problems := config.Decoder{Domain: "cluster.local"}.FromYAML(doc)
		require.Empty(t, problems, path)
		require.NotNil(t, object, path)
	}
}

func TestIdentities(t *testing.T) {
	m, _ := newMesh(t, Shape{Services: 3, Proxies: 7, Bystanders: 2})
	ids, concerned := m.Identities()
	require.Len(t, ids, 9)
	require.Equal(t, []bool{true, true, true, true, true, true, true, false, false}, concerned)
	require.Equal(t, "sidecar~10.0.0.5~svc-00001-1.mesh~mesh.svc.cluster.local", ids[4].ID())
	require.Len(t, m.Endpoints()["svc-00000"], 3, "its proxies are its pods")
	require.Equal(t, ids[4].IP, m.Endpoints()["svc-00001"][1].String())
	require.Equal(t, ids[1].Class, ids[4].Class)
	require.NotEqual(t, ids[1].Class, ids[2].Class)
}

// The marks of a storm's final state are known before it begins.
func TestStormWants(t *testing.T) {
	m, dir := newMesh(t, Shape{Services: 4, Proxies: 4})
	order := []int{0, 1, 0, 2, 1, 0}
	wants := m.StormWants(order)
	require.Len(t, wants, 3)
	for _, i := range order {
		c, err := m.ReplaceEndpoint(i)
		require.NoError(t, err)
		require.NoError(t, c.Apply())
	}
	for _, w := range wants {
		accepted := 0
		for i := range m.Services {
			b, err := os.ReadFile(filepath.Join(dir.dir, m.Service(i)+".yaml"))
			require.NoError(t, err)
			if w.Name == ClusterName(m.Service(i)) {
				require.True(t, w.Accept(b), w.Name)
				accepted++
			} else {
				require.False(t, w.Accept(b))
			}
		}
		require.Equal(t, 1, accepted)
	}
}

// A storm's shadow has as many services and endpoints as the mesh, changes in the same way, and leaves nothing behind.
func TestStormShadow(t *testing.T) {
	m, dir := newMesh(t, Shape{Services: 3, Proxies: 7, Bystanders: 2})
	glob := func(pattern string) []string {
		files, err := filepath.Glob(filepath.Join(dir.dir, pattern))
		require.NoError(t, err)
		return files
	}
	files := glob("*")
	shadow, err := m.StormShadow()
	require.NoError(t, err)
	shadows := glob("aside-*.yaml")
	require.Len(t, shadows, 3, "no routes, no Sidecars")
	read := func(path string) string {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(b)
	}
	endpoints := func(path string) int { return strings.Count(read(path), "addresses:") }
	for i, path := range shadows {
		checkFile(t, path)
		require.NotContains(t, read(path), "namespace: mesh")
		require.Equal(t, endpoints(filepath.Join(dir.dir, m.Service(i)+".yaml")), endpoints(path))
		own, before := read(filepath.Join(dir.dir, m.Service(i)+".yaml")), read(path)
		change, err := shadow.ReplaceEndpoint(i)
		require.NoError(t, err)
		require.NoError(t, change.Apply())
		require.NotEqual(t, before, read(path))
		require.Len(t, shadow.endpoints[m.Service(i)], endpoints(path))
		require.Equal(t, own, read(filepath.Join(dir.dir, m.Service(i)+".yaml")), "the mesh stays as it is")
	}
	require.NoError(t, shadow.RemoveServices())
	require.Equal(t, files, glob("*"))
}

func TestDirectoryMustBeEmpty(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.yaml"), nil, 0o600))
	_, err := NewDirectory(dir, dir+".staging")
	require.ErrorContains(t, err, "not empty")
	require.FileExists(t, filepath.Join(dir, "mine.yaml"))
}
