package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/atomicfile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, content := range []string{"one", "two"} {
		require.NoError(t, atomicfile.Write(path, []byte(content)))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(b))
	}
	require.NoError(t, atomicfile.WriteMode(path, []byte("three"), 0o644))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	require.Error(t, atomicfile.Write(filepath.Join(dir, "none", "a"), nil))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.Error(t, atomicfile.Write(filepath.Join(dir, "folder"), nil), "it is a folder")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 2, "a failed write leaves nothing behind")
}
