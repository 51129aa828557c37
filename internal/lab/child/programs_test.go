package child

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindPrograms(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	inPath := t.TempDir()
	t.Setenv("PATH", inPath)
	_, err = FindPrograms()
	require.ErrorIs(t, err, errNoMoonsail)

	write := func(dir string) string {
		file := filepath.Join(dir, "moonsail")
		require.NoError(t, os.WriteFile(file, nil, 0o700))
		t.Cleanup(func() { _ = os.Remove(file) })
		return file
	}
	other := write(inPath)
	p, err := FindPrograms()
	require.NoError(t, err)
	require.Equal(t, Programs{Moonsail: []string{other}, Lab: []string{self}}, p)

	beside := write(filepath.Dir(self))
	p, err = FindPrograms()
	require.NoError(t, err)
	require.Equal(t, []string{beside}, p.Moonsail, "the one next to moonsail-lab comes first")
}
