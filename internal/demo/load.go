package demo

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// requestTimeout is long enough for a request to fail for its own reason first.
	requestTimeout = 15 * time.Second
	// loadWorkers bounds the requests under way. Where all are busy requests are late,
	// and told as such.
	loadWorkers = 64
)

// Load is the shopper: it asks the front page at a steady rate, through its sidecar.
type Load struct {
	// Fixed.
	client   *http.Client
	url      string
	interval time.Duration
	cancel   context.CancelFunc
	ended    sync.WaitGroup // the ticker and the workers

	tally  atomic.Pointer[Tally] // where requests that begin now are counted
	paused atomic.Bool
	late   atomic.Int64 // requests that found all workers busy, and were not made
}

// StartLoad begins to ask url, rate times a second, through a sidecar. Stop must be called.
func StartLoad(sidecar, url string, rate int) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{
		client: &http.Client{Transport: sidecarTransport(sidecar), Timeout: requestTimeout},
		url:    url, interval: time.Second / time.Duration(rate), cancel: cancel,
	}
	l.tally.Store(NewTally())
	due := make(chan struct{}) // no buffer: a request is made on time or not at all
	for range loadWorkers {
		l.ended.Go(func() {
			for range due {
				l.request(ctx)
			}
		})
	}
	l.ended.Go(func() { l.tick(ctx, due) })
	return l
}

func (l *Load) tick(ctx context.Context, due chan<- struct{}) {
	defer close(due)
	t := time.NewTicker(l.interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if l.paused.Load() {
			continue
		}
		select {
		case due <- struct{}{}:
		default:
			l.late.Add(1)
		}
	}
}

func (l *Load) request(ctx context.Context) {
	t := l.tally.Load()
	for !t.begin() {
		t = l.tally.Load() // it was replaced this moment
	}
	started := time.Now()
	a, status, err := get(ctx, l.client, l.url, nil)
	t.end(started, time.Since(started), status, a, err)
}

// get asks a URL; status is 0 where there was no answer.
func get(ctx context.Context, client *http.Client, url string, header http.Header) (a Answer, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return a, 0, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	a, err = ask(client, req)
	var failed *statusError
	switch {
	case err == nil:
		status = http.StatusOK
	case errors.As(err, &failed):
		status = failed.status
	}
	return a, status, err
}

// Next counts requests that begin from now on anew, waits for those that are under way
// and gives the results of all that began before.
func (l *Load) Next() Counts {
	old := l.tally.Swap(NewTally())
	old.close()
	<-old.done // each request ends by its timeout
	return old.Counts()
}

// Counts are the results since the last Next.
func (l *Load) Counts() Counts { return l.tally.Load().Counts() }

// Pause stops making requests until Resume.
func (l *Load) Pause() { l.paused.Store(true) }

// Resume makes requests again.
func (l *Load) Resume() { l.paused.Store(false) }

// Late is how many requests were not made because too many were under way.
func (l *Load) Late() int64 { return l.late.Load() }

// Stop ends it; requests that are under way are given up.
func (l *Load) Stop() {
	l.cancel()
	l.ended.Wait()
	l.client.CloseIdleConnections()
}
