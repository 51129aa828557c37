//go:build linux

package hosts

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/netns"
)

// Callers of a load: each makes one request after the other.
const (
	keptCallers  = 4 // on a connection each
	freshCallers = 2 // on a connection a request
	callPause    = 20 * time.Millisecond
)

// load is requests from a host, until the test ends.
type load struct {
	t    *testing.T
	host *netns.Host
	stop func() // ends it, and waits for requests in progress

	mu       sync.Mutex                      // guards the fields below
	made     [keptCallers + freshCallers]int // requests that ended, by caller
	requests []request                       // answered or failed since the last look
	failures []request                       // those of them that failed
}

// request is the time during which one was in progress.
type request struct {
	began, ended time.Time
	err          error
}

func (r request) String() string {
	return fmt.Sprintf("from %s for %s: %v", r.began.Format("15:04:05.000"), r.ended.Sub(r.began), r.err)
}

// startLoad starts requests of a page from a host.
func startLoad(t *testing.T, h *netns.Host, url, host string) *load {
	t.Helper()
	l := &load{t: t, host: h}
	ctx, cancel := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for i := range keptCallers + freshCallers {
		callers.Go(func() { l.call(ctx, url, host, i) })
	}
	l.stop = func() {
		cancel()
		callers.Wait()
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) call(ctx context.Context, url, host string, caller int) {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialFrom(ctx, l.host, network, address)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: caller < freshCallers, DialContext: dial}, Timeout: patience}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(callPause):
		}
		r := request{began: time.Now()}
		r.err = ask(client, url, host)
		r.ended = time.Now()
		l.keep(caller, r)
	}
}

func (l *load) keep(caller int, r request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[caller]++
	l.requests = append(l.requests, r)
	if r.err != nil {
		l.failures = append(l.failures, r)
	}
}

// dialFrom opens a connection on a host.
func dialFrom(ctx context.Context, h *netns.Host, network, address string) (conn net.Conn, err error) {
	if e := h.Try(func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, address) }); e != nil {
		return nil, e
	}
	return conn, err
}

func ask(client *http.Client, url, host string) error {
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return err
}

func (l *load) counts() [keptCallers + freshCallers]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// more waits until each caller has ended some more requests. One that gets no answer fails the test.
func (l *load) more(n int) {
	l.t.Helper()
	from := l.counts()
	eventually(l.t, "requests", func() error {
		for caller, made := range l.counts() {
			if made -= from[caller]; made < n {
				return fmt.Errorf("caller %d has ended %d", caller, made)
			}
		}
		return nil
	})
}

// requireNoneLost checks that all requests since the last look were answered with 200.
func (l *load) requireNoneLost(during string) {
	l.t.Helper()
	l.more(5)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("%s: %d requests, %d lost", during, len(l.requests), len(l.failures))
	require.Empty(l.t, l.failures, during)
	l.requests = nil
}

// heardWithin is how long callers may take to notice closed connections: an Envoy may send a request on an idle
// connection until its worker has read the end of it, which the kernel has received.
const heardWithin = 250 * time.Millisecond

// requireOthersAnswered checks that all requests since the last look were answered with 200, except those in progress
// between two moments, or until callers had noticed the second.
func (l *load) requireOthersAnswered(during string, from, to time.Time) {
	l.t.Helper()
	l.more(5)
	l.mu.Lock()
	defer l.mu.Unlock()
	to = to.Add(heardWithin)
	underWay := func(r request) bool { return r.began.Before(to) && r.ended.After(from) }
	others := slices.DeleteFunc(slices.Clone(l.failures), underWay)
	made := len(l.requests)
	then := len(slices.DeleteFunc(l.requests, func(r request) bool { return !underWay(r) }))
	l.t.Logf("%s: %d requests, %d under way, %d lost", during, made, then, len(l.failures))
	require.Empty(l.t, others, "%s: they were not under way", during)
	require.LessOrEqual(l.t, len(l.failures), then, during)
	l.requests, l.failures = nil, nil
}
