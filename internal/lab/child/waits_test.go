package child

import (
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWaits checks that a wait for a lock is attributed to the place that held the lock.
func TestWaits(t *testing.T) {
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	srv := httptest.NewServer(http.HandlerFunc(pprof.Index))
	defer srv.Close()
	read := func() (count int64) {
		waits, raw, err := Waits(t.Context(), strings.TrimPrefix(srv.URL, "http://"), "mutex")
		require.NoError(t, err)
		require.NotEmpty(t, raw)
		for _, w := range waits {
			if strings.HasPrefix(w.Where, "child.contend:") {
				require.Positive(t, w.Time)
				count += w.Count
			}
		}
		return count
	}
	before := read()
	require.Eventually(t, func() bool { contend(); return read() > before }, time.Minute, time.Millisecond)
}

func contend() {
	var mu sync.Mutex
	var ended sync.WaitGroup
	mu.Lock()
	ended.Go(func() {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // the wait alone matters
	})
	for range 100 {
		runtime.Gosched() // until the other goroutine probably waits; otherwise the loop tries again
	}
	mu.Unlock()
	ended.Wait()
}

func TestWaitsOfGarbage(t *testing.T) {
	_, err := parseWaits("mutex", []byte("no profile"))
	require.ErrorContains(t, err, "profile mutex: ")
}
