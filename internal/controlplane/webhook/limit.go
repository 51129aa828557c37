package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
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

// limiter bounds requests in total and by client. A place that becomes free goes to the waiting client with the fewest
// running requests, so that clients with many requests do not keep out one with few.
type limiter struct {
	mu      sync.Mutex // guards the fields below
	wait    time.Duration
	running int
	waiting int
	arrived int              // turns, for their order
	clients map[string]*load // those with requests
}

// load are the requests of one client.
type load struct {
	running int
	waiting []*turn // in the order of their arrival
}

// turn is a request that waits.
type turn struct {
	number int
	come   chan struct{} // closed when the request may run
	limit  *time.Timer
}

func newLimiter() *limiter { return &limiter{wait: waitForTurn, clients: map[string]*load{}} }

// errBusy is the answer to a request for which there is no room.
var errBusy = errors.New("too many requests: retry later")

// enter waits until a client's request may run, and returns what to call at its end.
func (l *limiter) enter(ctx context.Context, client string) (leave func(), err error) {
	t, err := l.arrive(client)
	if err != nil {
		return nil, err
	}
	defer t.limit.Stop()
	select {
	case <-t.come:
	case <-t.limit.C:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil && l.giveUp(client, t) {
		return nil, err
	}
	return func() { l.leave(client) }, nil
}

// arrive returns the turn of a request, which may have come already.
func (l *limiter) arrive(client string) (*turn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clients[client]
	if c == nil {
		c = &load{}
		l.clients[client] = c
	}
	if l.waiting >= maxWaiting || len(c.waiting) >= maxWaitingOfClient {
		l.drop(client)
		return nil, errBusy
	}
	t := &turn{number: l.arrived, come: make(chan struct{}), limit: time.NewTimer(l.wait)}
	l.arrived++
	l.waiting++
	c.waiting = append(c.waiting, t)
	l.admit()
	return t, nil
}

// giveUp removes a turn. It returns false if it has come.
func (l *limiter) giveUp(client string, t *turn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clients[client]
	i := slices.Index(c.waiting, t)
	if i < 0 {
		return false
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	l.waiting--
	l.drop(client)
	return true
}

func (l *limiter) leave(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	l.clients[client].running--
	l.drop(client)
	l.admit()
}

// admit gives free places to waiting requests. The caller holds mu.
func (l *limiter) admit() {
	for l.running < maxReviews && l.waiting > 0 {
		c := l.next()
		if c == nil {
			return // they wait for the end of other requests of their clients
		}
		t := c.waiting[0]
		c.waiting = c.waiting[1:]
		l.waiting--
		l.running, c.running = l.running+1, c.running+1
		close(t.come)
	}
}

// next returns the client with the fewest running requests among those whose request may run, and of several the one whose
// request has waited longest; nil: there is none. The caller holds mu.
func (l *limiter) next() (first *load) {
	for _, c := range l.clients {
		switch {
		case len(c.waiting) == 0 || c.running >= maxReviewsOfClient:
		case first == nil, c.running < first.running, c.running == first.running && c.waiting[0].number < first.waiting[0].number:
			first = c
		}
	}
	return first
}

// drop forgets a client without requests. The caller holds mu.
func (l *limiter) drop(client string) {
	if c := l.clients[client]; c.running == 0 && len(c.waiting) == 0 {
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
