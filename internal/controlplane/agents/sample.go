package agents

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// sampleTimeout bounds the questions to a few proxies while a person waits.
const sampleTimeout = 5 * time.Second

// Sample asks some of the proxies that ACKed an object's last change whether they use it.
func (a *Client) Sample(ctx context.Context, where []distribution.ProxySyncStatus, rev model.Revision, most int) []Use {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	acked := slices.DeleteFunc(slices.Clone(where), func(w distribution.ProxySyncStatus) bool {
		return w.Position != distribution.StateACKed || w.Superseded
	})
	chosen := a.withEnvoy(acked, most)
	out := make([]Use, len(chosen))
	var asking sync.WaitGroup
	for i := range chosen {
		w := &chosen[i]
		asking.Go(func() {
			u, err := a.InUse(ctx, w.ID, rev)
			if err != nil {
				u = &Use{Proxy: w.Name + "." + w.Namespace, Error: err.Error()}
			}
			out[i] = *u
		})
	}
	asking.Wait()
	return out
}

// withEnvoy selects some proxies, evenly spread. Agents' own streams have no Envoy behind them; they are at
// most every second one.
func (a *Client) withEnvoy(all []distribution.ProxySyncStatus, most int) []distribution.ProxySyncStatus {
	return spread(slices.DeleteFunc(spread(all, 2*most), func(w distribution.ProxySyncStatus) bool {
		p, ok := a.Proxies.Proxy(w.ID)
		return ok && isAgent(&p)
	}), most)
}

func spread(all []distribution.ProxySyncStatus, most int) []distribution.ProxySyncStatus {
	out := make([]distribution.ProxySyncStatus, min(most, len(all)))
	for i := range out {
		out[i] = all[i*len(all)/len(out)]
	}
	return out
}

// isAgent reports whether a stream is for the agent itself: its plugins, or patches of the bootstrap.
func isAgent(p *server.ProxyState) bool { return p.Proxy != nil && p.Proxy.Extensions }

// Meter counts how long proxies took from their ACK until they used a change.
type Meter interface {
	InUse(d time.Duration, result string)
}

// Bounds of a Sampler.
const (
	sampledProxies = 2 // proxies of one change: the last that ACKed
	lookEvery      = 20 * time.Millisecond
	giveUpAfter    = 30 * time.Second
)

// Sampler measures the time from ACK to use, for some changes and some of their proxies. It is a
// changelog.Tracer: it gets changes when they have ended.
type Sampler struct {
	asker *Client
	every time.Duration // at most one change in this interval
	meter Meter
	next  chan changelog.Trace // capacity one; further changes are skipped while one is measured
}

// NewSampler returns a sampler. Run must be called.
func NewSampler(a *Client, every time.Duration, m Meter) *Sampler {
	return &Sampler{asker: a, every: every, meter: m, next: make(chan changelog.Trace, 1)}
}

// Trace implements changelog.Tracer.
func (s *Sampler) Trace(t changelog.Trace) {
	if t.Proxies.Acked == 0 {
		return
	}
	select {
	case s.next <- t:
	default:
	}
}

// Run measures until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	rest := time.NewTicker(s.every)
	defer rest.Stop()
	for {
		select {
		case t := <-s.next:
			s.measure(ctx, &t)
		case <-ctx.Done():
			return
		}
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
	}
}

// measure asks the last proxies that ACKed a change.
func (s *Sampler) measure(ctx context.Context, t *changelog.Trace) {
	n := 0
	for _, a := range slices.Backward(t.Answers) {
		if p, ok := s.asker.Proxies.Proxy(a.Proxy); ok && isAgent(&p) {
			continue
		}
		if a.Outcome == distribution.ACKed && n < sampledProxies {
			n++
			s.await(ctx, a, t.Revision)
		}
	}
}

// await asks one proxy until it uses the change, is gone, or it takes too long. If the first answer is
// positive, the time is an upper bound.
func (s *Sampler) await(parent context.Context, a changelog.Answer, rev model.Revision) {
	ctx, cancel := context.WithTimeout(parent, giveUpAfter)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		u, err := s.asker.InUse(ctx, a.Proxy, rev)
		switch {
		case parent.Err() != nil:
			return
		case ctx.Err() != nil:
			s.meter.InUse(time.Since(a.At), "timeout")
			return
		case err != nil:
			s.meter.InUse(0, "unknown")
			return
		case u.InUse && len(u.Asked) == 0:
			return // nothing had to warm, so there is nothing to measure
		case u.InUse:
			s.meter.InUse(time.Since(a.At), "in_use")
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
