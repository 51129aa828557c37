package file

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is an intake that keeps what it gets.
type recorder struct {
	mu      sync.Mutex // guards all below
	batches [][]store.Event
	synced  int // batches at the time of Synced, plus one; 0: not yet
	state   map[model.Key]model.Object
	loaded  func() // called once, by the first Put, before it returns
}

func (r *recorder) Put(events ...store.Event) {
	if len(events) == 0 {
		return
	}
	defer r.afterFirst()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, events)
	for _, e := range events {
		if e.Object == nil {
			delete(r.state, e.Key)
		} else {
			r.state[e.Key] = e.Object
		}
	}
}

func (r *recorder) afterFirst() {
	if r.loaded != nil && r.count() == 1 {
		r.loaded()
	}
}

func (r *recorder) Synced(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = len(r.batches) + 1
}

// syncs is not 0 once the source has called Synced.
func (r *recorder) syncs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced
}

// label returns the version of a namespace of the tests.
func label(o model.Object) string { return o.Metadata().Labels["v"] }

// String is "name=version ..." of what is in force, sorted.
func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for k, o := range r.state {
		out = append(out, k.Name+"="+label(o))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// since lists the events from a batch on: "name=version", or "-name".
func (r *recorder) since(batch int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, b := range r.batches[batch:] {
		for _, e := range b {
			if e.Object == nil {
				out = append(out, "-"+e.Key.Name)
			} else {
				out = append(out, e.Key.Name+"="+label(e.Object))
			}
		}
		out = append(out, "|")
	}
	return strings.Join(out, " ")
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.batches)
}

// fixture is a source that runs on a separate directory.
type fixture struct {
	*recorder
	t   *testing.T
	dir string
	src *Source
	log logtext.Buffer
}

// start writes files, "name" -> content, and runs a source on them.
func start(t *testing.T, files map[string]string) *fixture {
	t.Helper()
	f := prepare(t, files)
	f.run(f.dir)
	return f
}

func prepare(t *testing.T, files map[string]string) *fixture {
	t.Helper()
	f := &fixture{recorder: &recorder{state: map[model.Key]model.Object{}}, t: t, dir: t.TempDir()}
	for name, content := range files {
		f.write(name, content)
	}
	return f
}

func (f *fixture) run(dir string) {
	f.t.Helper()
	f.watch(dir)
	f.until(func() bool { return f.syncs() > 0 }, "synced")
}

// watch runs a source, and does not wait for it.
func (f *fixture) watch(dir string) {
	f.t.Helper()
	f.src = &Source{Dir: dir, Intake: f.recorder, Decoder: config.Decoder{Revision: model.DefaultRevision}, Log: slog.New(slog.NewTextHandler(&f.log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.src.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		require.NoError(f.t, await.From(f.t, done))
	})
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fixture) write(name, content string) {
	f.t.Helper()
	require.NoError(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o755))
	require.NoError(f.t, os.WriteFile(f.path(name), []byte(content), 0o644))
}

// replace writes a file as careful editors do: beside it, then renamed over it.
func (f *fixture) replace(name, content string) {
	f.t.Helper()
	temp := filepath.Join(f.dir, ".tmp~")
	require.NoError(f.t, os.WriteFile(temp, []byte(content), 0o644))
	require.NoError(f.t, os.Rename(temp, f.path(name)))
}

func (f *fixture) until(cond func() bool, what string) {
	f.t.Helper()
	require.Eventually(f.t, cond, time.Minute, time.Millisecond, what)
}

// becomes waits for what is in force.
func (f *fixture) becomes(want string) {
	f.t.Helper()
	require.EventuallyWithT(f.t, func(c *assert.CollectT) { assert.Equal(c, want, f.String()) },
		time.Minute, time.Millisecond)
}

// complains waits for problems, each of which contains its part.
func (f *fixture) complains(parts ...string) {
	f.t.Helper()
	f.until(func() bool {
		got := f.src.Problems()
		if len(got) != len(parts) {
			return false
		}
		for i, p := range got {
			if !strings.Contains(strings.ReplaceAll(p.String(), f.dir+"/", ""), parts[i]) {
				return false
			}
		}
		return true
	}, fmt.Sprint("problems ", parts))
}

// ns is a document with a namespace of a version.
func ns(name, version string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels: {v: %s}\n", name, version)
}

func docs(list ...string) string { return strings.Join(list, "---\n") }
