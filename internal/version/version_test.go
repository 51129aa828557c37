package version

import (
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
	require.Equal(t, "devel", got.Version)
	require.Equal(t, "0123456789abcdef0123", got.Commit)
	require.Equal(t, "2026-01-02T03:04:05Z", got.Time)
	require.True(t, got.Modified)
	require.True(t, strings.HasPrefix(got.String(), "devel (0123456789ab, modified) go"), got.String())

	bi.Main.Version = "v0.0.0-20260102030405-0123456789ab+dirty"
	require.Equal(t, "devel", from(bi).Version)

	bi.Main.Version = "v1.2.3"
	require.Equal(t, "v1.2.3", from(bi).Version)
}

func TestNoBuildInfo(t *testing.T) {
	got := from(nil)
	require.Equal(t, "devel", got.Version)
	require.NotContains(t, got.String(), "(")
}
