// Package concurrency measures the CPU time of each thread of a sidecar's Envoy as its load grows, and what another
// worker thread improves.
package concurrency

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
	Workers     []int // numbers of worker threads; each has a sidecar
	Loads       []int // requests a second, in percent of what one worker answers
	Connections int
	Phase       time.Duration // how long each load is
	Rounds      int
	Expect      time.Duration // of a round, at first
}

// DefaultOptions returns options for a run of about ten minutes.
func DefaultOptions() Options {
	return Options{Workers: []int{1, 2, 4}, Loads: []int{20, 40, 60, 80, 100, 120}, Connections: 64, Phase: 2 * time.Second, Rounds: 9, Expect: time.Minute}
}

// QuickOptions returns options for a run of less than two minutes.
func QuickOptions() Options {
	return Options{Workers: []int{1, 2}, Loads: []int{40, 80, 120}, Connections: 64, Phase: 800 * time.Millisecond, Rounds: 7, Expect: 10 * time.Second}
}

// Limits of options.
const (
	mostWorkers     = 64
	mostLoad        = 400
	mostConnections = 1024
)

// Check validates the options.
func (o *Options) Check() error {
	if err := rising("--workers", o.Workers, 1, mostWorkers); err != nil {
		return err
	}
	if o.Workers[0] != 1 {
		return errors.New("--workers must begin with 1: loads are in percent of what one worker answers")
	}
	if err := rising("--loads", o.Loads, 1, mostLoad); err != nil {
		return err
	}
	if o.Connections < 1 || o.Connections > mostConnections {
		return fmt.Errorf("--connections %d: use 1 to %d", o.Connections, mostConnections)
	}
	return nil
}

func rising(flag string, list []int, least, most int) error {
	if len(list) == 0 {
		return fmt.Errorf("%s: name at least one number", flag)
	}
	for _, n := range list {
		if n < least || n > most {
			return fmt.Errorf("%[1]s %[4]d: use %[2]d to %[3]d", flag, least, most, n)
		}
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(list))); !slices.Equal(sorted, list) {
		return fmt.Errorf("%s: list the numbers in ascending order", flag)
	}
	return nil
}
