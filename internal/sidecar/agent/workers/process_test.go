package workers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFind looks for a process of a container from outside.
func TestFind(t *testing.T) {
	proc := t.TempDir()
	process := func(id, namespace, status string) {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, id, "ns"), 0o755))
		require.NoError(t, os.Symlink(namespace, filepath.Join(proc, id, "ns", "pid")))
		require.NoError(t, os.WriteFile(filepath.Join(proc, id, "status"), []byte(status), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "sys/kernel/random"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "sys/kernel/random/boot_id"), []byte("b\n"), 0o600))
	process("self", "pid:[1]", "")
	process("20", "pid:[1]", "Name:\tenvoy\nNSpid:\t20\n")
	process("4242", "pid:[2]", "Name:\tenvoy\nNSpid:\t4242\t20\n")
	process("4243", "pid:[3]", "Name:\tenvoy\nNSpid:\t4243\t20\n")
	process("7", "pid:[2]", "Name:\tagent\nNSpid:\t7\t1\n")

	for _, tc := range []struct {
		process Process
		want    int
		err     string
	}{
		{Process{20, "pid:[1]", "b"}, 20, ""},
		{Process{20, "pid:[2]", "b"}, 4242, ""},
		{Process{20, "pid:[3]", "b"}, 4243, ""},
		{Process{21, "pid:[2]", "b"}, 0, "not visible"},
		{Process{20, "pid:[1]", "other"}, 0, "another machine"},
		{Process{PID: 20}, 0, "another machine"},
	} {
		got, err := tc.process.Find(proc)
		require.Equal(t, tc.want, got, "%+v", tc.process)
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err)
		}
	}
	require.Equal(t, Process{20, "pid:[1]", "b"}, Identify(proc, 20))
}

// TestFindItself: what is said of a process of this machine leads back to it.
func TestFindItself(t *testing.T) {
	p := Identify("/proc", os.Getpid())
	require.True(t, strings.HasPrefix(p.Namespace, "pid:["), p.Namespace)
	got, err := p.Find("/proc")
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), got)
}
