package demo

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUsedDirectoryIsRefused checks that a demo leaves the directory of another one alone, and starts nothing.
func TestUsedDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "config", "reviews.yaml")
	require.NoError(t, os.Mkdir(filepath.Dir(kept), 0o755))
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	executable, err := os.Executable()
	require.NoError(t, err)
	err = Run(t.Context(), Options{Binary: "moonsail", Envoy: executable, Dir: dir, Out: io.Discard})
	require.ErrorContains(t, err, "--dir "+dir+": contains the configuration of another demo: remove it, or name another directory")
	require.FileExists(t, kept)
}
