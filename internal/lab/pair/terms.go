package pair

import (
	"errors"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// Terms configure an experiment whose pairs differ in one thing each.
type Terms struct {
	Programs    child.Programs
	Envoy       string
	Concurrency int // worker threads of each Envoy; 0: one for each CPU
	Connections int // each sends its next request when the last one is answered
	Rate        int // requests per second while latencies are measured
	Quick       bool
}

// Check validates the terms.
func (t *Terms) Check() error {
	if t.Concurrency < 0 || t.Concurrency > 64 || t.Connections < 1 || t.Connections > 4096 || t.Rate < 10 {
		return errors.New("use a concurrency of 0 (one for each CPU) to 64, 1 to 4096 connections, and at least 10 requests per second")
	}
	return nil
}
