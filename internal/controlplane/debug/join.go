package debug

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// askTimeout is the default time for a question to all peers (?within=). maxMissing bounds the node IDs in
// one question.
const (
	askTimeout = 2 * time.Second
	maxMissing = 20_000
)

// unlisted stands for control planes that are not known yet.
const unlisted = "(others)"

// askAll asks all peers the same question. Replies name the peers that do not answer.
func askAll[T any](ctx context.Context, timeout time.Duration, all *peers.Peers, method string, question any) []explain.PeerReply[T] {
	select {
	case <-all.Looked():
	default:
		return []explain.PeerReply[T]{{PeerQuery: explain.PeerQuery{ControlPlane: unlisted, Silent: "the other control planes are not known yet"}}}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var out []explain.PeerReply[T]
	for _, a := range peers.Ask[T](ctx, all, method, question) {
		out = append(out, explain.PeerReply[T]{PeerQuery: explain.PeerQuery{ControlPlane: a.Address, Silent: a.Why}, Answer: a.Reply})
	}
	return out
}

// returned returns the proxies that are connected to any control plane.
func (h *handler) returned(ctx context.Context, timeout time.Duration, ids []string) map[string]bool {
	out := map[string]bool{}
	if len(ids) == 0 {
		return out
	}
	ids = ids[:min(len(ids), maxMissing)]
	found := h.stages.Explain.Proxies.Connected(ids)
	for _, s := range askAll[nodeIDs](ctx, timeout, h.stages.Peers, MethodConnected, nodeIDs{ids}) {
		if s.Answer != nil {
			found = append(found, s.Answer.IDs...)
		}
	}
	for _, id := range found {
		out[id] = true
	}
	return out
}

// within returns the time limit for peers.
func within(r *http.Request) (time.Duration, error) {
	s := r.URL.Query().Get("within")
	if s == "" {
		return askTimeout, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("?within=%s: use a positive duration, for example 500ms", s)
	}
	return min(d, askTimeout), nil
}

// joinExplanation adds what other control planes know of an object.
func (h *handler) joinExplanation(ctx context.Context, timeout time.Duration, e *explain.Explanation, ask explain.Ask) {
	replies := askAll[explain.Explanation](ctx, timeout, h.stages.Peers, MethodExplain, explainQuestion{e.Object, ask.All, ask.Max})
	e.Join(replies, h.returned(ctx, timeout, e.Missing(replies)), ask)
}

// joinStale adds proxies of other control planes with endpoints that are gone.
func (h *handler) joinStale(ctx context.Context, s *explain.Stale) {
	replies := askAll[explain.Stale](ctx, askTimeout, h.stages.Peers, MethodStale, struct{}{})
	s.Join(replies, h.returned(ctx, askTimeout, s.Missing(replies)))
}

// join adds proxies of other control planes. Times are converted to the local clock.
func (l *ProxyList) join(replies []explain.PeerReply[ProxyList]) {
	l.Now = time.Now()
	for i := range replies {
		s := &replies[i]
		if s.Answer != nil {
			s.LeftOut = s.Answer.LeftOut
			for j := range s.Answer.Proxies {
				own(&s.Answer.Proxies[j], s.ControlPlane, l.Now.Sub(s.Answer.Now))
			}
			for j := range s.Answer.Disconnected {
				own(&s.Answer.Disconnected[j], s.ControlPlane, l.Now.Sub(s.Answer.Now))
			}
			l.Proxies, l.Disconnected = append(l.Proxies, s.Answer.Proxies...), append(l.Disconnected, s.Answer.Disconnected...)
		}
		l.Others = append(l.Others, s.PeerQuery)
	}
	slices.SortStableFunc(l.Proxies, func(a, b server.ProxyState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ControlPlane, b.ControlPlane))
	})
}

// own sets the control plane of a proxy, and converts its times to a clock that is ahead by a duration.
func own(p *server.ProxyState, controlPlane string, ahead time.Duration) {
	p.ControlPlane = controlPlane
	explain.Shift(&p.Connected, ahead)
	explain.Shift(&p.BehindSince, ahead)
	explain.Shift(&p.DisconnectedSince, ahead)
	for i := range p.Types {
		explain.Shift(&p.Types[i].InFlightSince, ahead)
		for j := range p.Types[i].Held {
			explain.Shift(&p.Types[i].Held[j].Since, ahead)
		}
	}
}

// proxyElsewhere finds a proxy on another control plane. silent are the control planes that did not answer.
func (h *handler) proxyElsewhere(ctx context.Context, name string) (d *ProxyDetail, silent []string) {
	for _, s := range askAll[proxyAnswer](ctx, askTimeout, h.stages.Peers, MethodProxy, proxyQuestion{name}) {
		switch {
		case s.Answer == nil:
			silent = append(silent, s.ControlPlane)
		case s.Answer.Detail != nil:
			d, now := s.Answer.Detail, time.Now()
			own(&d.Proxy, s.ControlPlane, now.Sub(d.Now))
			d.Now = now
			return d, nil
		}
	}
	return nil, silent
}
