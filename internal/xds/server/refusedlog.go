package server

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// maxShown is how many bytes of a node ID logs and errors show.
const maxShown = 256

// ShortID returns a node ID for logs and errors: at most 256 bytes of it.
func ShortID(id string) string {
	if len(id) <= maxShown {
		return id
	}
	return id[:maxShown] + "..."
}

// refusedPerSecond bounds the log lines about refused proxies. Clients without a certificate cause them.
const refusedPerSecond = 10

// refusedLog logs refused proxies, and counts those that it leaves out.
type refusedLog struct {
	mu     sync.Mutex // guards the fields
	second int64
	lines  int // in this second
	hidden int // since the last line
}

// log writes a line, unless there were too many in this second.
func (r *refusedLog) log(to *slog.Logger, now time.Time, id, peer string, err error) {
	if hidden, ok := r.next(now); ok {
		to.Warn("proxy refused", "proxy", ShortID(id), "peer", peer, "error", status.Convert(err).Message(), "omitted", hidden)
	}
}

// next reports whether a line may be written, and how many were not since the last one.
func (r *refusedLog) next(now time.Time) (hidden int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := now.Unix(); s != r.second {
		r.second, r.lines = s, 0
	}
	if r.lines == refusedPerSecond {
		r.hidden++
		return 0, false
	}
	r.lines++
	hidden, r.hidden = r.hidden, 0
	return hidden, true
}
