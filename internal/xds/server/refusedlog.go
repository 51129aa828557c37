package server

import (
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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
	limit  *rate.Limiter
	hidden atomic.Int64 // lines left out since the last one
}

func newRefusedLog() *refusedLog {
	return &refusedLog{limit: rate.NewLimiter(refusedPerSecond, refusedPerSecond)}
}

// log writes a line, unless there were too many in the last second.
func (r *refusedLog) log(to *slog.Logger, now time.Time, id, peer string, err error) {
	if !r.limit.AllowN(now, 1) {
		r.hidden.Add(1)
		return
	}
	to.Warn("proxy refused", "proxy", ShortID(id), "peer", peer, "error", status.Convert(err).Message(), "omitted", r.hidden.Swap(0))
}
