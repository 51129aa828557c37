package dependencies

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/traffic"
)

// Measured is what proxies of a workload counted of its calls to a service between their last two answers. For TCP, requests
// are connections.
type Measured struct {
	Seconds    float64 `json:"seconds"` // between the two answers
	Requests   float64 `json:"requests"`
	Errors     float64 `json:"errors"`     // without an answer, or with an HTTP status from 500 or a gRPC status of the server's errors
	ErrorShare float64 `json:"errorShare"` // of the requests, 0 to 1
	// Failures are the errors by status and response flags, such as "503 UH".
	Failures map[string]float64 `json:"failures,omitempty"`
	Reached  float64            `json:"reached"`             // requests that a server answered, as far as the callers know
	Mutual   float64            `json:"mutual"`              // of these, with a certificate of the mesh
	TLS      MutualTLS          `json:"mutualTLS,omitempty"` // of the answered ones; empty: none was answered
}

// MutualTLS is which requests have mutual TLS.
type MutualTLS string

// Values of MutualTLS.
const (
	MutualAll  MutualTLS = "yes"
	MutualNone MutualTLS = "no"
	MutualSome MutualTLS = "partly"
)

func measuredOf(c *traffic.Count, over time.Duration) *Measured {
	m := &Measured{Seconds: over.Seconds(), Requests: c.Requests, Errors: c.Errors, Failures: maps.Clone(c.Failures), Reached: c.Reached, Mutual: c.Mutual}
	m.judge()
	return m
}

// judge sets the fields that follow from others.
func (m *Measured) judge() {
	m.ErrorShare, m.TLS = 0, ""
	if m.Requests > 0 {
		m.ErrorShare = m.Errors / m.Requests
	}
	switch {
	case m.Reached <= 0:
	case m.Mutual <= 0:
		m.TLS = MutualNone
	case m.Mutual < m.Reached:
		m.TLS = MutualSome
	default:
		m.TLS = MutualAll
	}
}

// with returns the sum with what other proxies counted. It changes neither.
func (m *Measured) with(o *Measured) *Measured {
	switch {
	case m == nil:
		return o
	case o == nil:
		return m
	}
	sum := &traffic.Count{}
	for _, one := range []*Measured{m, o} {
		sum.Add(&traffic.Count{Requests: one.Requests, Errors: one.Errors, Failures: one.Failures, Reached: one.Reached, Mutual: one.Mutual})
	}
	return measuredOf(sum, time.Duration(max(m.Seconds, o.Seconds)*float64(time.Second)))
}

// Kinds lists the kinds of failures, the most frequent first.
func (m *Measured) Kinds() []string {
	return slices.SortedFunc(maps.Keys(m.Failures), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.Failures[b], m.Failures[a]), strings.Compare(a, b))
	})
}
