package dependencies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/logtext"
)

// board is a Store in memory.
type board struct {
	mu       sync.Mutex // guards the fields below
	data     []byte
	version  int
	writes   int
	fails    int           // that many writes fail
	changed  chan struct{} // closed with each change
	watchers int
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

func (b *board) Place() string { return "board" }

func (b *board) Watch(ctx context.Context, see func([]byte, string)) error {
	for {
		b.mu.Lock()
		data, version, changed := b.data, b.version, b.changed
		b.watchers++
		b.mu.Unlock()
		see(data, fmt.Sprint(version))
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *board) Write(_ context.Context, data []byte, version string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fails > 0:
		b.fails--
		return "", errors.New("away")
	case version != fmt.Sprint(b.version):
		return "", ErrChanged
	}
	b.set(data)
	b.writes++
	return fmt.Sprint(b.version), nil
}

func (b *board) set(data []byte) {
	b.data, b.version = data, b.version+1
	close(b.changed)
	b.changed = make(chan struct{})
}

// keep runs a Keeper of a new memory until stop.
func keep(t *testing.T, s Store) (w *world, log *logtext.Buffer, stop func()) {
	t.Helper()
	w = &world{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.Memory = NewMemory(func() time.Time { return w.at })
	log = &logtext.Buffer{}
	k := &Keeper{Memory: w.Memory, Store: s, Log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return w, log, stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 10*time.Millisecond, what)
}

func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dependencies")
	for name, s := range map[string]Store{"board": newBoard(), "file": File{path}} {
		t.Run(name, func(t *testing.T) {
			one, _, stop := keep(t, s)
			require.Empty(t, one.known(t, "web"))
			one.Asked(proxyOf("web"), []string{clusterOf(80, reviews)}, false)
			stop() // the last write
			two, log, _ := keep(t, s)
			require.Equal(t, []string{clusterOf(80, reviews)}, two.known(t, "web"), "a proxy waits until it is read")
			require.Empty(t, log.String())
		})
	}
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// TestShared has two control planes learn at the same time.
func TestShared(t *testing.T) {
	b := newBoard()
	one, _, _ := keep(t, b)
	two, _, _ := keep(t, b)
	one.Asked(proxyOf("web"), []string{clusterOf(80, reviews)}, false)
	two.Asked(proxyOf("web"), []string{clusterOf(80, ratings)}, false)
	both := []string{clusterOf(80, ratings), clusterOf(80, reviews)}
	for _, w := range []*world{one, two} {
		eventually(t, "both know both", func() bool { return fmt.Sprint(w.known(t, "web")) == fmt.Sprint(both) })
	}
	eventually(t, "both are stored", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		list, err := unpack(b.data)
		return err == nil && len(list) == 1 && len(list[0].Calls) == 2
	})
}

// TestFewWrites calls the same service again and again: only a call much later is worth a write.
func TestFewWrites(t *testing.T) {
	b := newBoard()
	w, _, stop := keep(t, b)
	require.Empty(t, w.known(t, "web"))
	web := WorkloadOf(proxyOf("web"))
	w.Called(web, []model.Host{reviews})
	eventually(t, "it is written", func() bool { return !w.worthWriting() })
	w.at = w.at.Add(coarse / 2)
	w.Called(web, []model.Host{reviews})
	require.False(t, w.worthWriting())
	w.at = w.at.Add(coarse)
	w.Called(web, []model.Host{reviews})
	stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(t, 2, b.writes)
}

func (m *Memory) worthWriting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dirty
}

func TestUnreadable(t *testing.T) {
	other, err := pack([]Record{{Workload: Workload{Name: "web"}}})
	require.NoError(t, err)
	for name, data := range map[string][]byte{"no gzip": []byte("x"), "cut": other[:len(other)-9]} {
		t.Run(name, func(t *testing.T) {
			b := newBoard()
			b.set(data)
			w, log, stop := keep(t, b)
			require.Empty(t, w.known(t, "web"))
			w.Asked(proxyOf("web"), []string{clusterOf(80, reviews)}, false)
			stop()
			require.Contains(t, log.String(), "what is stored cannot be read, and is replaced")
			list, err := unpack(b.data)
			require.NoError(t, err)
			require.Len(t, list, 1)
		})
	}
}

// TestStoreFails keeps what was learned, in memory, while it cannot be written.
func TestStoreFails(t *testing.T) {
	b := newBoard()
	b.fails = 1
	w, log, stop := keep(t, b)
	w.Asked(proxyOf("web"), []string{clusterOf(80, reviews)}, false)
	eventually(t, "the error is logged", func() bool { return log.String() != "" })
	require.Contains(t, log.String(), "not written: the write is repeated")
	stop()
	list, err := unpack(b.data)
	require.NoError(t, err)
	require.Len(t, list, 1)

	w, log, stop = keep(t, File{filepath.Join(t.TempDir(), "none", "dependencies")})
	w.Asked(proxyOf("web"), []string{clusterOf(80, reviews)}, false)
	eventually(t, "the error is logged", func() bool { return log.String() != "" })
	require.Equal(t, []string{clusterOf(80, reviews)}, w.known(t, "web"))
	stop()
}

// TestMerge takes what others stored, with clocks that differ.
func TestMerge(t *testing.T) {
	w := newWorld()
	now := w.at
	web := WorkloadOf(proxyOf("web"))
	record := func(first, last time.Duration, host model.Host) Record {
		return Record{web, []Call{{Target{Host: host, Port: 80}, now.Add(first), now.Add(last)}}}
	}
	w.Asked(proxyOf("web"), []string{clusterOf(80, reviews)}, false)
	w.merge([]Record{
		record(-5*time.Hour, -3*time.Hour, reviews),
		record(time.Hour, 2*time.Hour, ratings),                                          // by a clock that is ahead
		record(-2*Keep, -Keep-time.Hour, "old.shop.svc.cluster.local"), record(0, 0, ""), // expired, and invalid
	})
	require.Equal(t, "shop/web/web: "+ratings+":80 0-0 "+reviews+":80 5-0\n", w.text())
	call := []Call{{Target{Host: reviews, Port: 80}, now, now}}
	w.merge([]Record{
		{Workload{"shop", "web", "a\nb"}, call}, {Workload{"shop\n", "web", "web"}, call}, {Workload{"shop", "w eb", "web"}, call},
		record(0, 0, "a\nb"), {web, []Call{{Target{reviews, 0, "v1"}, now, now}, {Target{reviews, 1 << 16, ""}, now, now}}},
	})
	require.Equal(t, "shop/web/web: "+ratings+":80 0-0 "+reviews+":80 5-0\n", w.text(), "the others are invalid")
}

// TestPortReplacesNone has one control plane learn a host from metrics, and the other one its port.
func TestPortReplacesNone(t *testing.T) {
	b := newBoard()
	one, _, stop := keep(t, b)
	require.Empty(t, one.known(t, "web"), "it waits until the store is read")
	one.Called(WorkloadOf(proxyOf("web")), []model.Host{reviews})
	stop()
	one, _, _ = keep(t, b)
	require.Equal(t, []string{reviews}, one.known(t, "web"))
	two, _, _ := keep(t, b)
	require.Equal(t, []string{reviews}, two.known(t, "web"))
	two.Asked(proxyOf("web"), []string{clusterOf(80, reviews)}, false)
	for _, w := range []*world{one, two} {
		eventually(t, "the port replaces none", func() bool { return fmt.Sprint(w.known(t, "web")) == fmt.Sprint([]string{clusterOf(80, reviews)}) })
	}
	one.Called(WorkloadOf(proxyOf("web")), []model.Host{reviews})
	require.Equal(t, []string{clusterOf(80, reviews)}, one.known(t, "web"))
	eventually(t, "it is stored", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		list, err := unpack(b.data)
		return err == nil && len(list) == 1 && len(list[0].Calls) == 1 && list[0].Calls[0].Port == 80
	})
}
