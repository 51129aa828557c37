package kube

import (
	"slices"
	"strings"
	"time"
)

// Health is how well the API server is heard.
type Health struct {
	Kinds []KindHealth `json:"kinds"` // what is listed and watched, by name
	// Heartbeat is when a write of the heartbeat was seen last, the source's start if none was; zero where
	// none is written.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

// KindHealth is how well requests about a kind are answered. What is known of it stays in force while they
// are not.
type KindHealth struct {
	Kind     string    `json:"kind"`
	Answered time.Time `json:"answered,omitzero"` // the last request that was; a watch that runs is one
	Failing  time.Time `json:"failing,omitzero"`  // since when requests fail; zero: the last one was answered
	Error    string    `json:"error,omitempty"`
}

// FailingFor is for how long; 0 where the last request was answered.
func (k *KindHealth) FailingFor(now time.Time) time.Duration {
	if k.Failing.IsZero() {
		return 0
	}
	return now.Sub(k.Failing)
}

// Health tells how well the API server is heard. Anybody may ask.
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
