package pair

import (
	"errors"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// Terms are what an experiment on pairs is told that differ in one thing each.
type Terms struct {
	Programs    child.Programs
	Envoy       string
	Concurrency int // worker threads of each Envoy; 0: one a core
	Connections int // that send as fast as answers come
	Rate        int // requests a second where latencies are measured
	Quick       bool
}

// Check tells what is wrong with them.
func (t *Terms) Check() error {
	if t.Concurrency < 0 || t.Concurrency > 64 || t.Connections < 1 || t.Connections > 4096 || t.Rate < 10 {
		return errors.New("concurrency is 0 (one a core) to 64, connections are 1 to 4096, the rate is 10 a second or more")
	}
	return nil
}
