package kube

import (
	"slices"
	"strings"
	"time"
)

// Health describes the connection to the API server.
type Health struct {
	Kinds []KindHealth `json:"kinds"` // what is listed and watched, by name
	// Heartbeat is when a write of the heartbeat was last received, or the source's start; zero if none is written.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

// KindHealth describes the requests for a kind. During failures the objects stay in force.
type KindHealth struct {
	Kind     string    `json:"kind"`
	Answered time.Time `json:"answered,omitzero"` // the last answer; a running watch counts as one
	Failing  time.Time `json:"failing,omitzero"`  // start of the failures; zero: the last request succeeded
	Error    string    `json:"error,omitempty"`
}

// FailingFor returns the duration of the failures; 0: the last request succeeded.
func (k *KindHealth) FailingFor(now time.Time) time.Duration {
	if k.Failing.IsZero() {
		return 0
	}
	return now.Sub(k.Failing)
}

// Health returns the present health. It is safe for concurrent use.
func (s *Source) Health() Health {
	out := Health{Kinds: s.status.health()}
	if at := s.beaten.Load(); at != 0 {
		out.Heartbeat = time.Unix(0, at)
	}
	return out
}

func (s *status) health() []KindHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]KindHealth, 0, len(s.answers)+len(s.failing))
	for kind, at := range s.answers {
		out = append(out, KindHealth{Kind: kind, Answered: at})
	}
	for kind := range s.failing {
		if _, ok := s.answers[kind]; !ok {
			out = append(out, KindHealth{Kind: kind})
		}
	}
	for i := range out {
		if f, ok := s.failing[out[i].Kind]; ok {
			out[i].Failing, out[i].Error = f.since, f.err.Error()
		}
	}
	slices.SortFunc(out, func(a, b KindHealth) int { return strings.Compare(a.Kind, b.Kind) })
	return out
}
