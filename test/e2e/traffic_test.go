package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// traffic is constant calls of one host, on several connections.
type traffic struct {
	t      *testing.T
	url    string
	host   string
	client http.Client
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu       sync.Mutex     // guards the fields below
	calls    int            // that have ended
	round    int            // of take
	fresh    int            // calls that began in this round and have ended
	answers  map[string]int // bodies of 200s of these
	failures []string
}

const (
	callers    = 3
	callPause  = time.Millisecond // between two calls of one caller
	reconnect  = 50               // calls on one connection
	callLimit  = 20 * time.Second
	maxReports = 10
)

// startTraffic calls a host through a sidecar until the test ends. Calls must not fail.
func startTraffic(t *testing.T, c *client, host string) *traffic {
	t.Helper()
	return startTrafficAt(t, c.url(), host)
}

func startTrafficAt(t *testing.T, url, host string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &traffic{t: t, url: url, host: host, cancel: cancel, answers: map[string]int{}}
	l.client = http.Client{Timeout: callLimit, Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	for range callers {
		l.ended.Go(func() { l.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		l.ended.Wait()
		l.client.CloseIdleConnections()
		if len(l.failures) > 0 {
			t.Errorf("%d of %d calls of %s failed: %q", len(l.failures), l.calls, host, l.failures[:min(maxReports, len(l.failures))])
		}
	})
	return l
}

func (l *traffic) run(ctx context.Context) {
	pause := time.NewTicker(callPause)
	defer pause.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			l.call(n%reconnect == 0)
		}
	}
}

// call makes one call; the end of the test does not cut it off.
func (l *traffic) call(last bool) {
	l.mu.Lock()
	start, round := time.Now(), l.round
	l.mu.Unlock()
	body, err := get(&l.client, l.url, l.host, last)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if err != nil {
		l.failures = append(l.failures, start.Format("15:04:05.000 ")+err.Error())
		return
	}
	if round == l.round {
		l.fresh++
		l.answers[body]++
	}
}

// get makes a call that must be answered with 200. last ends its connection.
func get(c *http.Client, url, host string, last bool) (string, error) {
	return getWith(context.Background(), c, url, host, last)
}

func getWith(ctx context.Context, c *http.Client, url, host string, last bool) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Host, req.Close = host, last
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s (flags %s)", resp.Status, body, resp.Header.Get("x-flags"))
	}
	return string(body), err
}

// stop ends the calls.
func (l *traffic) stop() {
	l.cancel()
	l.ended.Wait()
}

// failed returns and forgets the failures so far, which then do not fail the test.
func (l *traffic) failed() (calls int, failures []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failures, l.failures = l.failures, nil
	return l.calls, failures
}

// take returns the answers of at least n calls that began after it was called. The first few do not count: Envoy ACKs
// before all its workers use the new configuration.
func (l *traffic) take(n int) map[string]int {
	l.t.Helper()
	l.next(callers)
	return l.next(n)
}

// next returns the answers of at least n calls that began after it was called.
func (l *traffic) next(n int) map[string]int {
	l.t.Helper()
	l.mu.Lock()
	l.round, l.fresh = l.round+1, 0
	clear(l.answers)
	l.mu.Unlock()
	eventually(l.t, "calls go on", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.fresh >= n
	}, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.answers)
}

// requireOnly checks that from now on exactly these answer calls.
func (l *traffic) requireOnly(who ...string) {
	l.t.Helper()
	got := l.take(40)
	for _, w := range who {
		require.NotZero(l.t, got[w], "%v", got)
		delete(got, w)
	}
	require.Empty(l.t, got, "wanted only %v", who)
}
