package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// load calls at a constant rate, whether earlier calls have been answered or not.
type load struct {
	rate    float64
	timeout time.Duration
	report  string
	fresh   bool
}

// Stats are the results since the start or the last reset. Calls in flight are not counted.
type Stats struct {
	Oldest    time.Time      `json:"oldest,omitzero"` // when the oldest call in flight began
	Calls     int            `json:"calls"`
	Failed    int            `json:"failed"`
	Slowest   time.Duration  `json:"slowest"`
	Instances map[string]int `json:"instances"` // successful calls
	Failures  []Failure      `json:"failures"`  // the first maxFailures
}

// Failure is a failed call.
type Failure struct {
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"took"`
	Error string        `json:"error"`
}

const maxFailures = 100

type recorder struct {
	mu       sync.Mutex // guards the fields below
	stats    Stats
	inFlight map[int]time.Time // when calls in flight began, by number
	last     int               // number of the last call
}

func (r *recorder) begin() (call int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inFlight == nil {
		r.inFlight = map[int]time.Time{}
	}
	r.last++
	r.inFlight[r.last] = time.Now()
	return r.last
}

func (r *recorder) record(call int, instance string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began := r.inFlight[call]
	took := time.Since(began)
	delete(r.inFlight, call)
	r.stats.Calls++
	r.stats.Slowest = max(r.stats.Slowest, took)
	if err == nil {
		if r.stats.Instances == nil {
			r.stats.Instances = map[string]int{}
		}
		r.stats.Instances[instance]++
		return
	}
	r.stats.Failed++
	failure := Failure{Began: began, Took: took, Error: err.Error()}
	_ = json.NewEncoder(os.Stdout).Encode(failure) // the log
	if len(r.stats.Failures) < maxFailures {
		r.stats.Failures = append(r.stats.Failures, failure)
	}
}

// take returns the statistics, and starts anew if reset is set.
func (r *recorder) take(reset bool) Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats
	for _, began := range r.inFlight {
		if out.Oldest.IsZero() || began.Before(out.Oldest) {
			out.Oldest = began
		}
	}
	if reset {
		r.stats = Stats{}
	} else {
		out.Instances = maps.Clone(out.Instances)
	}
	return out
}

func (l load) run(ctx context.Context, target string) error {
	call, err := callerFor(target)
	if err != nil {
		return err
	}
	var header http.Header
	if l.fresh {
		header = http.Header{"Connection": {"close"}}
	}
	var r recorder
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.report)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for path, reset := range map[string]bool{"/stats": false, "/reset": true} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(r.take(reset)) // an error means that the client has gone
		})
	}
	reporter := &http.Server{Handler: mux, ReadHeaderTimeout: defaultTimeout}
	go func() { _ = reporter.Serve(listener) }() // ends with the program
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.rate))
	defer tick.Stop()
	var all sync.WaitGroup
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			all.Wait()
			fmt.Printf("%+v\n", r.take(false))
			return nil
		}
		all.Go(func() {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
			defer cancel()
			n := r.begin()
			instance, _, err := call(limited, header)
			r.record(n, instance, err)
		})
	}
}
