package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/test/logtext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var entry = cni.Entry{Type: cni.PluginName, Socket: "/s", ExcludeNamespaces: []string{"kube-system"}}

const (
	entryText = `{"type":"moonsail-cni","socket":"/s","exclude_namespaces":["kube-system"]}`
	bridge    = `{"type":"bridge","ipam":{"mtu":9007199254740993}}`
)

// list is a network's file with plugins.
func list(plugins ...string) string {
	return `{"cniVersion":"1.0.0","name":"net","own":{"a":1},"plugins":[` + strings.Join(plugins, ",") + `]}`
}

// TestEntry checks where the entry is put, and that everything else stays.
func TestEntry(t *testing.T) {
	portmap := `{"type":"portmap"}`
	for name, tc := range map[string]struct {
		in, want string // want empty: unchanged
		wrong    string // in the error
	}{
		"last":                      {list(bridge, portmap), list(bridge, portmap, entryText), ""},
		"there":                     {list(bridge, entryText), "", ""},
		"there, in another order":   {list(bridge, `{"socket": "/s", "exclude_namespaces": ["kube-system"], "type": "moonsail-cni"}`), "", ""},
		"there, others follow":      {list(bridge, entryText, portmap), "", ""},
		"of other settings":         {list(bridge, `{"type":"moonsail-cni","socket":"/old"}`, portmap), list(bridge, portmap, entryText), ""},
		"twice":                     {list(bridge, entryText, entryText), list(bridge, entryText), ""},
		"beside istio-cni":          {list(bridge, `{"type":"istio-cni"}`), list(bridge, `{"type":"istio-cni"}`, entryText), ""},
		"one plugin":                {`{"cniVersion":"0.4.0","name":"n","type":"bridge"}`, `{"cniVersion":"0.4.0","name":"n","plugins":[{"cniVersion":"0.4.0","name":"n","type":"bridge"},` + entryText + `]}`, ""},
		"one plugin, no version":    {`{"type":"bridge"}`, `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"bridge"},` + entryText + `]}`, ""},
		"one plugin, old version":   {`{"cniVersion":"0.2.0","type":"bridge"}`, `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"cniVersion":"0.2.0","type":"bridge"},` + entryText + `]}`, ""},
		"list of an old version":    {`{"cniVersion":"0.2.0","plugins":[{"type":"bridge"}]}`, "", "cniVersion"},
		"list without a version":    {`{"plugins":[{"type":"bridge"}]}`, "", "cniVersion"},
		"not JSON":                  {`{"cniVersion":`, "", "not JSON"},
		"an empty file":             {``, "", "not JSON"},
		"no plugins":                {`{"cniVersion":"1.0.0","plugins":[]}`, "", "the list is empty"},
		"a plugin without a type":   {list(bridge, `{}`), "", "plugins[1]: type is missing"},
		"neither list nor a plugin": {`{"name":"n"}`, "", "type is missing"},
		"plugins that are no list":  {`{"plugins":{}}`, "", "plugins"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := with([]byte(tc.in), &entry)
			if tc.wrong != "" {
				require.ErrorContains(t, err, tc.wrong)
				return
			}
			require.NoError(t, err)
			if tc.want == "" {
				require.Equal(t, tc.in, string(got))
				return
			}
			require.JSONEq(t, tc.want, string(got))
			again, err := with(got, &entry)
			require.NoError(t, err)
			require.Equal(t, string(got), string(again))
			back, err := without(got)
			require.NoError(t, err)
			require.NotContains(t, string(back), cni.PluginName)
			require.Equal(t, strings.Contains(tc.in, "9007199254740993"), strings.Contains(string(back), "9007199254740993"), "numbers keep their digits")
		})
	}
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o640)) //nolint:gosec // test data
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(file))
	require.NoError(t, err)
	return string(text)
}

// TestChoose checks that the network is the one that a container runtime uses.
func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		files   map[string]string
		named   string
		want    string // empty: none
		skipped int
	}{
		"the first":         {map[string]string{"20-b.conflist": list(bridge), "10-a.conflist": list(bridge), "00-readme.txt": "x"}, "", "10-a.conflist", 0},
		"the first valid":   {map[string]string{"20-b.conf": bridge, "10-a.conflist": "{"}, "", "20-b.conf", 1},
		"by name":           {map[string]string{"20-b.conflist": list(bridge), "10-a.conflist": list(bridge)}, "20-b.conflist", "20-b.conflist", 0},
		"became a list":     {map[string]string{"20-b.conflist": list(bridge)}, "20-b.conf", "20-b.conflist", 0},
		"is not yet a list": {map[string]string{"20-b.conf": bridge}, "20-b.conflist", "20-b.conf", 0},
		"none":              {map[string]string{".moonsail-cni-1": list(bridge)}, "", "", 0},
		"none of the name":  {map[string]string{"10-a.conflist": list(bridge)}, "20-b.conflist", "", 0},
		"only invalid ones": {map[string]string{"10-a.conflist": "{", "20-b.json": "[]"}, "", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for n, text := range tc.files {
				write(t, dir, n, text)
			}
			got, skipped, err := choose(dir, tc.named)
			require.Len(t, skipped, tc.skipped)
			if tc.want == "" {
				require.ErrorIs(t, err, ErrNoNetwork)
				return
			}
			require.NoError(t, err)
			require.Equal(t, filepath.Join(dir, tc.want), got)
		})
	}
}

// newInstaller returns an installer for empty folders.
func newInstaller(t *testing.T) *Installer {
	t.Helper()
	i := &Installer{NetDir: t.TempDir(), BinDir: t.TempDir(), Program: write(t, t.TempDir(), "plugin", "program 1"), Entry: entry,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Checked: func(error) {}}
	return i
}

// names lists a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestInstallAndRemove checks the files of a node, their modes, and that nothing else changes.
func TestInstallAndRemove(t *testing.T) {
	i := newInstaller(t)
	_, err := i.Install()
	require.ErrorIs(t, err, ErrNoNetwork)

	file := write(t, i.NetDir, "10-net.conflist", list(bridge))
	other := write(t, i.NetDir, "20-other.conflist", list(bridge))
	changed, err := i.Install()
	require.NoError(t, err)
	require.Equal(t, []string{file}, changed)
	require.JSONEq(t, list(bridge, entryText), read(t, file))
	require.JSONEq(t, list(bridge), read(t, other))
	require.Equal(t, []string{"10-net.conflist", "20-other.conflist"}, names(t, i.NetDir))
	for f, mode := range map[string]os.FileMode{file: 0o640, filepath.Join(i.BinDir, cni.PluginName): 0o755} {
		info, err := os.Stat(f)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), f)
	}
	changed, err = i.Install()
	require.NoError(t, err)
	require.Empty(t, changed, "a second time, nothing is written")

	require.NoError(t, os.WriteFile(i.Program, []byte("program 2"), 0o600))
	changed, err = i.Install()
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(i.BinDir, cni.PluginName)}, changed)
	require.Equal(t, "program 2", read(t, filepath.Join(i.BinDir, cni.PluginName)))

	for range 2 {
		require.NoError(t, i.Remove())
		require.JSONEq(t, list(bridge), read(t, file))
		require.Empty(t, names(t, i.BinDir))
	}
}

// TestUnfinishedCopiesAreRemoved checks that copies of agents that were killed do not fill the node's disk, and that a copy that
// another agent writes stays.
func TestUnfinishedCopiesAreRemoved(t *testing.T) {
	i := newInstaller(t)
	write(t, i.NetDir, "10-net.conflist", list(bridge))
	leave := func(name string, age time.Duration) {
		write(t, i.BinDir, name, "prog")
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(filepath.Join(i.BinDir, name), at, at))
	}
	leave(".moonsail-cni-1", time.Hour)
	leave(".moonsail-cni-2", 0)
	leave(".other", time.Hour)
	_, err := i.Install()
	require.NoError(t, err)
	require.Equal(t, []string{".moonsail-cni-2", ".other", cni.PluginName}, names(t, i.BinDir))

	leave(".moonsail-cni-2", time.Hour)
	require.NoError(t, i.Remove())
	require.Equal(t, []string{".other"}, names(t, i.BinDir))
}

// TestOnePlugin checks that a file for one plugin becomes a list, and is not left before it.
func TestOnePlugin(t *testing.T) {
	i := newInstaller(t)
	write(t, i.NetDir, "10-net.conf", `{"cniVersion":"1.0.0","name":"n","type":"bridge"}`)
	changed, err := i.Install()
	require.NoError(t, err)
	require.Contains(t, changed, filepath.Join(i.NetDir, "10-net.conflist"))
	require.Equal(t, []string{"10-net.conflist"}, names(t, i.NetDir))
	require.NoError(t, i.Remove())
	require.JSONEq(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"cniVersion":"1.0.0","name":"n","type":"bridge"}]}`, read(t, filepath.Join(i.NetDir, "10-net.conflist")))
}

// TestOnePluginIsRewritten checks that the list follows a file for one plugin that its owner writes again, also if the
// list has lost the entry.
func TestOnePluginIsRewritten(t *testing.T) {
	for name, between := range map[string]func(*testing.T, *Installer){
		"while installed": func(*testing.T, *Installer) {},
		"after a removal": func(t *testing.T, i *Installer) { t.Helper(); require.NoError(t, i.Remove()) },
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstaller(t)
			write(t, i.NetDir, "10-net.conf", `{"cniVersion":"1.0.0","name":"n","type":"bridge"}`)
			_, err := i.Install()
			require.NoError(t, err)
			between(t, i)
			newer := `{"cniVersion":"1.0.0","name":"n","type":"bridge","mtu":1400}`
			write(t, i.NetDir, "10-net.conf", newer)
			changed, err := i.Install()
			require.NoError(t, err)
			list := filepath.Join(i.NetDir, "10-net.conflist")
			require.Contains(t, changed, list)
			require.JSONEq(t, `{"cniVersion":"1.0.0","name":"n","plugins":[`+newer+`,`+entryText+`]}`, read(t, list))
			require.Equal(t, []string{"10-net.conflist"}, names(t, i.NetDir))
		})
	}
}

// TestProgramCannotBeCopied checks that the list does not get an entry without a program.
func TestProgramCannotBeCopied(t *testing.T) {
	i := newInstaller(t)
	file := write(t, i.NetDir, "10-net.conflist", list(bridge))
	i.BinDir = filepath.Join(i.BinDir, "missing")
	_, err := i.Install()
	require.ErrorIs(t, err, ErrProgram)
	require.Equal(t, list(bridge), read(t, file))
}

// TestOthersWriteMeanwhile checks that content which another program writes between reading and replacing stays, and
// gets the entry.
func TestOthersWriteMeanwhile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "10-net.conflist", list(`{"type":"v0"}`))
	writes := 0
	changed, err := edit(file, func(text []byte) ([]byte, error) {
		out, err := with(text, &entry)
		if writes < 5 {
			writes++
			require.NoError(t, place(file, []byte(list(fmt.Sprintf(`{"type":"v%d"}`, writes))), 0o600))
		}
		return out, err
	})
	require.NoError(t, err)
	require.True(t, changed)
	require.JSONEq(t, list(`{"type":"v5"}`, entryText), read(t, file))
	require.Equal(t, []string{"10-net.conflist"}, names(t, dir))

	write(t, dir, "10-net.conflist", list(bridge))
	_, err = edit(file, func(text []byte) ([]byte, error) {
		writes++
		require.NoError(t, place(file, []byte(list(fmt.Sprintf(`{"type":"v%d"}`, writes))), 0o600))
		return with(text, &entry)
	})
	require.ErrorContains(t, err, "another program keeps writing it")
	require.JSONEq(t, list(fmt.Sprintf(`{"type":"v%d"}`, writes)), read(t, file), "its content stays")
}

// TestExchangeInSteps checks the replacement for file systems without an atomic exchange.
func TestExchangeInSteps(t *testing.T) {
	dir := t.TempDir()
	a, b := write(t, dir, "a", "A"), write(t, dir, "b", "B")
	require.NoError(t, exchangeInSteps(a, b))
	require.Equal(t, "B", read(t, a))
	require.Equal(t, "A", read(t, b))
	require.Len(t, names(t, dir), 2)
}

// TestRun checks that an installation follows the node: the network comes late, is rewritten, is replaced by another
// one; the program is removed.
func TestRun(t *testing.T) {
	defer func(p, q time.Duration) { pause, poll = p, q }(pause, poll)
	pause, poll = time.Millisecond, time.Millisecond
	t.Run("with a watcher", testRun)
	t.Run("without a watcher", func(t *testing.T) {
		defer func(f func() (*fsnotify.Watcher, error)) { newWatcher = f }(newWatcher)
		newWatcher = func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") }
		testRun(t)
	})
}

func testRun(t *testing.T) {
	i := newInstaller(t)
	var state atomic.Value
	i.Checked = func(err error) { state.Store(fmt.Sprint(err)) }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-done)
	}()
	becomes := func(what string, met func() bool) {
		t.Helper()
		require.Eventually(t, met, time.Minute, time.Millisecond, what)
	}
	becomes("the state without a network", func() bool {
		s, _ := state.Load().(string)
		return strings.Contains(s, ErrNoNetwork.Error())
	})
	program, file := filepath.Join(i.BinDir, cni.PluginName), filepath.Join(i.NetDir, "10-net.conflist")
	has := func(file string) func() bool {
		return func() bool {
			text, err := os.ReadFile(filepath.Clean(file))
			return err == nil && bytes.Contains(text, []byte(cni.PluginName))
		}
	}
	write(t, i.NetDir, "10-net.conflist", list(bridge))
	becomes("the entry", has(file))
	becomes("the state", func() bool { return state.Load() == "<nil>" })
	require.NoError(t, place(file, []byte(list(`{"type":"other"}`)), 0o600))
	becomes("the entry after a rewrite", has(file))
	require.JSONEq(t, list(`{"type":"other"}`, entryText), read(t, file))
	require.NoError(t, os.Remove(program))
	becomes("the program", func() bool { _, err := os.Stat(program); return err == nil })
	first := write(t, i.NetDir, "05-first.conflist", list(bridge))
	becomes("the entry in a network that comes first", has(first))
}

// TestFightIsLogged checks that the log names the problem if another program removes the entry again and again.
func TestFightIsLogged(t *testing.T) {
	defer func(p time.Duration) { pause = p }(pause)
	pause = time.Millisecond
	i := newInstaller(t)
	var log logtext.Buffer
	i.Log = slog.New(slog.NewTextHandler(&log, nil))
	file := write(t, i.NetDir, "10-net.conflist", list(bridge))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	installed := func() bool { return strings.Contains(read(t, file), cni.PluginName) }
	const problem = "another program removes the CNI plugin again and again"
	for range 3 {
		require.Eventually(t, installed, time.Minute, time.Millisecond)
		require.NotContains(t, log.String(), problem)
		require.NoError(t, place(file, []byte(list(bridge)), 0o600))
	}
	require.Eventually(t, func() bool { return strings.Contains(log.String(), problem) }, time.Minute, time.Millisecond)
	require.Contains(t, log.String(), "cni.exclusive=false")
	stop()
	require.NoError(t, <-done)
}

// TestFilesBesideAreKept checks that a list beside the file of one plugin is not replaced, and that a file that another
// program writes meanwhile is not removed.
func TestFilesBesideAreKept(t *testing.T) {
	one := `{"cniVersion":"1.0.0","name":"n","type":"bridge"}`
	t.Run("a list of another program", func(t *testing.T) {
		i := newInstaller(t)
		conf, other := write(t, i.NetDir, "10-net.conf", one), write(t, i.NetDir, "10-net.conflist", list(bridge))
		_, err := i.Install()
		require.ErrorContains(t, err, "remove one of the two files")
		require.Equal(t, one, read(t, conf))
		require.Equal(t, list(bridge), read(t, other))
	})
	t.Run("a list of another network", func(t *testing.T) {
		i := newInstaller(t)
		text, err := with([]byte(`{"cniVersion":"1.0.0","name":"other","type":"bridge"}`), &i.Entry)
		require.NoError(t, err)
		write(t, i.NetDir, "10-net.conf", one)
		other := write(t, i.NetDir, "10-net.conflist", string(text))
		_, err = i.Install()
		require.ErrorContains(t, err, "remove one of the two files")
		require.Equal(t, string(text), read(t, other))
	})
	t.Run("an installation that was interrupted", func(t *testing.T) {
		i := newInstaller(t)
		text, err := with([]byte(one), &i.Entry)
		require.NoError(t, err)
		write(t, i.NetDir, "10-net.conf", one)
		ours := write(t, i.NetDir, "10-net.conflist", string(text))
		_, err = i.Install()
		require.NoError(t, err)
		require.Equal(t, string(text), read(t, ours))
		require.Equal(t, []string{"10-net.conflist"}, names(t, i.NetDir))
	})
	t.Run("a newer file", func(t *testing.T) {
		dir := t.TempDir()
		file := write(t, dir, "10-net.conf", "new")
		removed, err := removeIf(file, []byte("old"))
		require.NoError(t, err)
		require.False(t, removed)
		require.Equal(t, "new", read(t, file))
		require.Equal(t, []string{"10-net.conf"}, names(t, dir))
	})
}

// TestProgramStaysWithUnreadableFile checks that the program is not removed while a network may name it.
func TestProgramStaysWithUnreadableFile(t *testing.T) {
	i := newInstaller(t)
	require.NoError(t, os.Symlink(filepath.Join(i.NetDir, "loop.conf"), filepath.Join(i.NetDir, "loop.conf")))
	write(t, i.BinDir, cni.PluginName, "program")
	require.ErrorContains(t, i.Remove(), "loop.conf")
	require.Equal(t, []string{cni.PluginName}, names(t, i.BinDir))
}

// TestProgramIsReplacedWhenItChanges checks that a changed program or copy is noticed, also if its size stays the same.
func TestProgramIsReplacedWhenItChanges(t *testing.T) {
	i := &Installer{BinDir: t.TempDir(), Program: write(t, t.TempDir(), "plugin", "program 1")}
	target := filepath.Join(i.BinDir, cni.PluginName)
	aged := func() {
		for _, file := range []string{i.Program, target} {
			require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(-time.Minute)))
		}
	}
	for _, change := range []func(){
		func() {},
		func() { require.NoError(t, os.WriteFile(i.Program, []byte("program 2"), 0o600)) },
		func() { require.NoError(t, os.WriteFile(target, []byte("program 0"), 0o600)) },
		func() { require.NoError(t, os.Remove(target)) },
	} {
		change()
		copied, err := i.copyProgram()
		require.NoError(t, err)
		require.True(t, copied)
		want, err := os.ReadFile(i.Program)
		require.NoError(t, err)
		have, err := os.ReadFile(target)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have))
		aged()
		for range 2 {
			copied, err = i.copyProgram()
			require.NoError(t, err)
			require.False(t, copied)
		}
		require.NotNil(t, i.equal.program, "the contents are not compared again")
	}
}
