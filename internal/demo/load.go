package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// requestTimeout is longer than all timeouts on the way of a request, so that errors have their reason.
	requestTimeout = 15 * time.Second
	// loadWorkers bounds the requests in flight. If all workers are busy, a request is left out
	// and counted as late.
	loadWorkers = 64
)

// Load plays the shopper: it requests the front page at a steady rate, through the sidecar.
type Load struct {
	// Fixed:
	client   *http.Client
	url      string
	interval time.Duration
	cancel   context.CancelFunc
	ended    sync.WaitGroup // the ticker and the workers

	tally  atomic.Pointer[Tally] // of requests that begin now
	paused atomic.Bool
	late   atomic.Int64 // requests left out because all workers were busy
}

// StartLoad requests url through a sidecar, rate times per second, until Stop.
func StartLoad(sidecar, url string, rate int) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{
		client: &http.Client{Transport: sidecarTransport(sidecar), Timeout: requestTimeout},
		url:    url, interval: time.Second / time.Duration(rate), cancel: cancel,
	}
	l.tally.Store(NewTally())
	due := make(chan struct{}) // unbuffered: a request starts on time or not at all
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
		t = l.tally.Load() // Next has just replaced it
	}
	started := time.Now()
	a, status, err := get(ctx, l.client, l.url, nil)
	t.end(started, time.Since(started), status, a, err)
}

// get requests a URL. status is 0 if there was no response.
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

// Next starts a new count, waits for the requests in flight,
// and returns the results of those that began before.
func (l *Load) Next() Counts {
	old := l.tally.Swap(NewTally())
	old.close()
	<-old.done // each request ends after its timeout at the latest
	return old.Counts()
}

// Counts returns the results since the last Next.
func (l *Load) Counts() Counts { return l.tally.Load().Counts() }

// Pause stops making requests until Resume.
func (l *Load) Pause() { l.paused.Store(true) }

// Resume continues after Pause.
func (l *Load) Resume() { l.paused.Store(false) }

// Late returns the number of requests that were left out because too many were in flight.
func (l *Load) Late() int64 { return l.late.Load() }

// Stop ends the load and cancels requests in flight.
func (l *Load) Stop() {
	l.cancel()
	l.ended.Wait()
	l.client.CloseIdleConnections()
}

// sample waits for n requests that begin from now on, and returns their results. It adds them, and
// the requests that began before, to total.
func (d *demo) sample(ctx context.Context, n int, total *Counts) (Counts, error) {
	total.merge(d.load.Next())
	if err := d.awaitRequests(ctx, fmt.Sprintf("%d requests", n), func(c Counts) bool { return c.Requests >= n }); err != nil {
		return Counts{}, err
	}
	c := d.load.Next()
	total.merge(c)
	return c, nil
}

func (d *demo) awaitRequests(ctx context.Context, what string, enough func(Counts) bool) error {
	timeout := changeTimeout + 3*time.Duration(d.Sample)*time.Second/time.Duration(d.Rate)
	return await(ctx, timeout, what, func(context.Context) error {
		if c := d.load.Counts(); !enough(c) {
			return fmt.Errorf("%s so far", c.String())
		}
		return nil
	})
}

// ask makes n requests, one after the other, beside those of the load.
func (d *demo) ask(ctx context.Context, n int, url string, header http.Header) Counts {
	t := NewTally()
	for range n {
		t.begin()
		started := time.Now()
		a, status, err := get(ctx, d.load.client, url, header)
		t.end(started, time.Since(started), status, a, err)
	}
	return t.Counts()
}
