package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// TestLendKeepsFolders checks that the agent's user keeps the folder of the bootstrap: as root the agent would follow links
// in it.
func TestLendKeepsFolders(t *testing.T) {
	u := &envoy.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if os.Geteuid() == 0 { // only root can give a file to another user
		u = &envoy.User{UID: 1337, GID: 1337}
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o720|fs.ModeSticky))
	file := filepath.Join(dir, "bootstrap")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error { return lend(path, d, u) }))
	for path, want := range map[string]struct {
		uid  uint32
		mode fs.FileMode
	}{dir: {uint32(os.Geteuid()), 0o710 | fs.ModeSticky}, file: {u.UID, 0o600}} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want.mode, info.Mode()&^fs.ModeDir, path)
		of, _ := info.Sys().(*syscall.Stat_t)
		require.Equal(t, want.uid, of.Uid, path)
		require.Equal(t, u.GID, of.Gid, path)
	}
}
