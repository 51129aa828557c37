// Package balance measures how the worker threads of a sidecar's Envoy share its connections:
// with the listener that the control plane generates, without its exact_balance, and with one
// socket for all workers.
package balance

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Options configure a run.
type Options struct {
	Pair        pair.Options
	Workers     int           // of each Envoy
	Connections []int         // open at once
	Phase       time.Duration // how long each load is
	Rounds      int
	Expect      time.Duration // of a round, at first
}

// DefaultOptions returns options for a run of about ten minutes.
func DefaultOptions() Options {
	return Options{Workers: 4, Connections: []int{8, 16, 64, 256, 1024}, Phase: time.Second, Rounds: 9, Expect: 75 * time.Second}
}

// QuickOptions returns options for a run of less than two minutes.
func QuickOptions() Options {
	return Options{Workers: 4, Connections: []int{8, 64, 256}, Phase: 300 * time.Millisecond, Rounds: 5, Expect: 18 * time.Second}
}

// Limits of options.
const (
	mostWorkers     = 64
	mostConnections = 4096
)

// Check validates the options.
func (o *Options) Check() error {
	if o.Workers < 2 || o.Workers > mostWorkers {
		return fmt.Errorf("--workers %[2]d: use 2 to %[1]d", mostWorkers, o.Workers)
	}
	if len(o.Connections) == 0 {
		return errors.New("--connections: name at least one number")
	}
	for _, n := range o.Connections {
		if n < o.Workers || n > mostConnections {
			return fmt.Errorf("--connections %[3]d: use at least the number of workers, %[1]d, and at most %[2]d", o.Workers, mostConnections, n)
		}
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(o.Connections))); !slices.Equal(sorted, o.Connections) {
		return errors.New("--connections: list the numbers in ascending order")
	}
	return nil
}
