package envoy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeEnvoy writes a script that answers --version like Envoy and returns its path.
func fakeEnvoy(t *testing.T, dir, version string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "envoy")
	script := "#!/bin/sh\necho\necho \"envoy  version: abc123/" + version + "/Clean/RELEASE/BoringSSL\"\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	return path
}

// nowhere hides all Envoys of this machine: it makes the working directory, the cache and the environment empty. PATH keeps
// only the system's folders with sh.
func nowhere(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{"work", "cache", "bin"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, d), 0o755))
	}
	t.Chdir(filepath.Join(root, "work"))
	t.Setenv(PathVariable, "")
	t.Setenv("HOME", root)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(root, "cache"))
	t.Setenv("PATH", filepath.Join(root, "bin"))
	return root
}

func makeCheckout(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+modulePath+"\n\ngo 1.26\n"), 0o644))
}

func TestFindOrder(t *testing.T) {
	root := nowhere(t)
	work := filepath.Join(root, "work")

	_, err := Find("")
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "moonsail envoy install")
	require.ErrorContains(t, err, PathVariable)

	// Each place precedes those above it.
	places := []struct {
		source string
		make   func() string
	}{
		{"PATH", func() string { return fakeEnvoy(t, filepath.Join(root, "bin"), Version) }},
		{"cache", func() string {
			return fakeEnvoy(t, filepath.Join(root, "cache", "moonsail", "envoy", Version), Version)
		}},
		{"checkout", func() string {
			makeCheckout(t, work)
			sub := filepath.Join(work, "internal", "deep")
			require.NoError(t, os.MkdirAll(sub, 0o755))
			t.Chdir(sub)
			return fakeEnvoy(t, filepath.Join(work, ".tools", "envoy", Version), Version)
		}},
		{PathVariable, func() string {
			path := fakeEnvoy(t, filepath.Join(root, "mine"), "1.2.3")
			t.Setenv(PathVariable, path)
			return path
		}},
	}
	for _, p := range places {
		want := p.make()
		got, err := Find("")
		require.NoError(t, err)
		require.Equal(t, Binary{Path: want, Source: p.source}, got)
	}
	flag := fakeEnvoy(t, filepath.Join(root, "flag"), "1.2.3")
	got, err := Find(flag)
	require.NoError(t, err)
	require.Equal(t, Binary{Path: flag, Source: "--envoy"}, got)
}

func TestFindRejects(t *testing.T) {
	root := nowhere(t)

	fakeEnvoy(t, filepath.Join(root, "bin"), "1.39.0")
	_, err := Find("")
	require.ErrorContains(t, err, `version "1.39.0", wanted `+Version)

	t.Setenv(PathVariable, filepath.Join(root, "absent"))
	_, err = Find("")
	require.ErrorContains(t, err, PathVariable+"="+filepath.Join(root, "absent"))
	require.ErrorContains(t, err, "moonsail envoy install")
}

func TestCheckoutOfAnotherModuleIsNotOurs(t *testing.T) {
	root := nowhere(t)
	work := filepath.Join(root, "work")
	require.NoError(t, os.WriteFile(filepath.Join(work, "go.mod"), []byte("module "+modulePath+"x\n"), 0o644))
	_, ok := checkoutAround(work)
	require.False(t, ok)
}
