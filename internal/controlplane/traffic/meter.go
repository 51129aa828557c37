package traffic

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// Bounds.
const (
	maxEdges   = 5000 // of a Graph
	maxCalls   = 1000 // of one proxy
	maxRecords = 100_000
	maxBuckets = 64
	maxErrors  = 5 // in a Graph

	every        = 5 * time.Second  // between two measurements
	firstAgain   = 2 * time.Second  // until the second one, which makes the first rates
	unwatched    = 30 * time.Second // without a reader, measuring ends
	roundTimeout = 20 * time.Second
	restFactor   = 4 // a measurement that took t is followed by a rest of at least restFactor*t
)

// source measures once. It may use numbers of earlier measurements, until forget.
type source interface {
	measure(ctx context.Context) *Graph
	forget()
}

// Meter measures while its results are read.
type Meter struct {
	source source
	name   string
	newest atomic.Pointer[Graph]
	read   atomic.Int64  // the time of the last Graph call, in Unix nanoseconds
	wake   chan struct{} // capacity one
}

func newMeter(name string, s source) *Meter {
	return &Meter{source: s, name: name, wake: make(chan struct{}, 1)}
}

// Graph returns the result of the last measurement and has further ones made. It does not wait for one.
func (m *Meter) Graph() *Graph {
	m.read.Store(time.Now().UnixNano())
	select {
	case m.wake <- struct{}{}:
	default:
	}
	g := Graph{Source: m.name, Edges: []Edge{}}
	if newest := m.newest.Load(); newest != nil {
		g = *newest
	}
	g.Now, g.Every = time.Now(), every.Seconds()
	return &g
}

// Run measures until ctx ends, while Graph is called.
func (m *Meter) Run(ctx context.Context) {
	for {
		select {
		case <-m.wake:
		case <-ctx.Done():
			return
		}
		for m.watched() && ctx.Err() == nil {
			m.round(ctx)
		}
		m.source.forget()
		m.newest.Store(nil)
	}
}

func (m *Meter) watched() bool {
	return time.Since(time.Unix(0, m.read.Load())) < unwatched
}

// round measures once and rests.
func (m *Meter) round(ctx context.Context) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, roundTimeout)
	g := m.source.measure(limited)
	cancel()
	g.Source, g.At = m.name, time.Now()
	m.newest.Store(g)
	rest := every
	if !g.Rated {
		rest = firstAgain
	}
	_ = clock.Sleep(ctx, max(rest, restFactor*time.Since(began))) // the caller sees the end of ctx
}
