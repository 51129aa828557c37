package demo

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUsedDirectoryIsRefused: the directory of a demo that may go on is left alone, and nothing is started.
func TestUsedDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "config", "reviews.yaml")
	require.NoError(t, os.Mkdir(filepath.Dir(kept), 0o755))
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	executable, err := os.Executable()
	require.NoError(t, err)
	err = Run(t.Context(), Options{Binary: "moonsail", Envoy: executable, Dir: dir, Out: io.Discard})
	require.ErrorContains(t, err, dir+" has a demo's configuration already: remove it, or give --dir another directory")
	require.FileExists(t, kept)
}
