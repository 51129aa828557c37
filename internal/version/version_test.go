package version

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFrom(t *testing.T) {
	bi := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		{Key: "vcs.modified", Value: "true"},
	}}
	bi.Main.Version = "(devel)"
	got := from(bi)
	require.Equal(t, "0.1.0-dev+0123456789ab", got.Version)
	require.Equal(t, "0123456789abcdef0123", got.Commit)
	require.Equal(t, "2026-01-02T03:04:05Z", got.Time)
	require.True(t, got.Modified)
	require.True(t, strings.HasPrefix(got.String(), "0.1.0-dev+0123456789ab (modified) go"), got.String())

	bi.Main.Version = "v0.0.0-20260102030405-0123456789ab+dirty"
	require.Equal(t, "0.1.0-dev+0123456789ab", from(bi).Version)

	bi.Main.Version = "v1.2.3"
	require.Equal(t, "v1.2.3", from(bi).Version)
	require.True(t, strings.HasPrefix(from(bi).String(), "v1.2.3 (0123456789ab, modified) go"), from(bi).String())
}

// TestRelease checks that the version that the linker sets precedes that of the build information.
func TestRelease(t *testing.T) {
	release = "0.1.0"
	defer func() { release = "" }()
	require.Equal(t, "0.1.0", Get().Version)
}

// TestNextVersion checks that the changelog prepares the same version.
func TestNextVersion(t *testing.T) {
	log, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	require.Contains(t, string(log), "version will be "+next+".")
}

// TestIstioAPI holds the version to that of the module.
func TestIstioAPI(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(text), "\tistio.io/api v"+IstioAPI+"\n")
}

func TestNoBuildInfo(t *testing.T) {
	got := from(nil)
	require.Equal(t, "0.1.0-dev", got.Version)
	require.NotContains(t, got.String(), "(")
}
