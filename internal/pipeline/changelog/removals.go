package changelog

import (
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// RemovedEndpoint is an address that calls must not go to any more: it is not listed, or
// not ready.
type RemovedEndpoint struct {
	Revision model.Revision
	Observed time.Time
	Address  string
	Object   model.Key // that listed it
	// Service is the Kubernetes Service that it was an endpoint of; Labels, those of a
	// WorkloadEntry, for selectors to find it. Hosts are a ServiceEntry's.
	Service model.Key
	Labels  map[string]string
	Hosts   []model.Host
}

// removals remembers the newest maxRemovals of them.
type removals struct {
	mu   sync.Mutex        // guards the fields
	ring []RemovedEndpoint // in the order of revisions, beginning at next where it is full
	next int
}

const maxRemovals = 8192

// Removed notes endpoints that went; called by the engine, in the order of revisions.
func (l *Log) Removed(list []RemovedEndpoint) {
	r := &l.removals
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range list {
		if len(r.ring) < maxRemovals {
			r.ring = append(r.ring, e)
			continue
		}
		r.ring[r.next] = e
		r.next = (r.next + 1) % maxRemovals
	}
}

// RemovedEndpoints are those that went after a revision, oldest first, as far as they are
// remembered.
func (l *Log) RemovedEndpoints(after model.Revision) []RemovedEndpoint {
	r := &l.removals
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []RemovedEndpoint
	for i := range r.ring {
		if e := r.ring[(r.next+i)%len(r.ring)]; e.Revision > after {
			out = append(out, e)
		}
	}
	return out
}
