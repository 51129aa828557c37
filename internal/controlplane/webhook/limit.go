package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Any host of the cluster may reach the webhooks. The bounds leave room for the API server while others send what they can.
const (
	maxReviews         = 96 // requests that are read and answered at once; each holds a body
	maxReviewsOfClient = 32 // of these, those of one address
	maxWaiting         = 1024
	maxWaitingOfClient = 256
	waitForTurn        = 5 * time.Second
	readBodyWithin     = 5 * time.Second
	maxConns           = 1024
	maxConnsOfClient   = 128
)

// limiter bounds requests in total and by client.
type limiter struct {
	wait time.Duration

	mu      sync.Mutex // guards the fields below
	all     load
	clients map[string]*load
	freed   chan struct{} // closed when a request ends
}

// load counts requests.
type load struct{ running, waiting int }

func newLimiter() *limiter {
	return &limiter{wait: waitForTurn, clients: map[string]*load{}, freed: make(chan struct{})}
}

// errBusy is the answer to a request for which there is no room.
var errBusy = errors.New("too many requests: retry later")

// enter waits until a client's request may run, and returns what to call at its end.
func (l *limiter) enter(ctx context.Context, client string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clients[client]
	if c == nil {
		c = &load{}
		l.clients[client] = c
	}
	if l.all.waiting >= maxWaiting || c.waiting >= maxWaitingOfClient {
		l.drop(client)
		return nil, errBusy
	}
	l.all.waiting, c.waiting = l.all.waiting+1, c.waiting+1
	defer func() {
		l.all.waiting, c.waiting = l.all.waiting-1, c.waiting-1
		l.drop(client)
	}()
	timer := time.NewTimer(l.wait)
	defer timer.Stop()
	for l.all.running >= maxReviews || c.running >= maxReviewsOfClient {
		freed := l.freed
		l.mu.Unlock()
		select {
		case <-freed:
		case <-timer.C:
			err = errBusy
		case <-ctx.Done():
			err = ctx.Err()
		}
		l.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	l.all.running, c.running = l.all.running+1, c.running+1
	return func() { l.leave(client) }, nil
}

func (l *limiter) leave(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.running--
	l.clients[client].running--
	l.drop(client)
	close(l.freed)
	l.freed = make(chan struct{})
}

// drop forgets a client without requests.
func (l *limiter) drop(client string) {
	if *l.clients[client] == (load{}) {
		delete(l.clients, client)
	}
}

// limited applies the bounds to a handler. refused is called for each request that is not answered.
func limited(next http.Handler, l *limiter, refused func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, err := l.enter(r.Context(), addressOf(r))
		if err != nil {
			refused()
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		defer leave()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readBodyWithin)) // tests' writers have no deadline
		next.ServeHTTP(w, r)
	})
}

// addressOf returns the client's address without its port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
