package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/terminal"
)

// maxFailures bounds the failures that a tally keeps. It counts all of them.
const maxFailures = 50

// Failure is a failed request with the reason.
type Failure struct {
	At     time.Time
	Took   time.Duration
	Reason string
}

// Counts are the results of requests.
type Counts struct {
	Requests  int
	Failed    int
	Retried   int            // answers, in the whole tree of calls, that took a sidecar more than one attempt
	Statuses  map[int]int    // 0: no response
	Versions  map[string]int // "reviews/v2" -> its answers, in the whole tree of calls
	Instances map[string]int // "reviews-v2-1" -> the same
	Failures  []Failure
	latencies []time.Duration
}

func newCounts() Counts {
	return Counts{Statuses: map[int]int{}, Versions: map[string]int{}, Instances: map[string]int{}}
}

// add counts the answers of an application and of those that it called.
func (c *Counts) add(a Answer) {
	if a.Instance != "" {
		c.Versions[a.Service+"/"+a.Version]++
		c.Instances[a.Instance]++
	}
	if a.Attempt > 1 {
		c.Retried++
	}
	for _, called := range a.Calls {
		c.add(called)
	}
}

// Quantile returns the latency that a fraction q of the requests did not exceed.
func (c *Counts) Quantile(q float64) time.Duration { return quantile(c.latencies, q) }

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Share returns the fraction of the answers of some versions of a service that came from one of them.
func (c *Counts) Share(service, version string, of ...string) float64 {
	total := 0
	for _, v := range of {
		total += c.Versions[service+"/"+v]
	}
	if total == 0 {
		return 0
	}
	return float64(c.Versions[service+"/"+version]) / float64(total)
}

// String returns the results on one line.
func (c *Counts) String() string {
	s := fmt.Sprintf("%s, %d failed", terminal.Count(c.Requests, "request"), c.Failed)
	if c.Retried > 0 {
		s += fmt.Sprintf(", %s retried by sidecars", terminal.Count(c.Retried, "call"))
	}
	if len(c.latencies) > 0 {
		s += fmt.Sprintf(", p50 %.1f ms, p99 %.1f ms", ms(c.Quantile(.5)), ms(c.Quantile(.99)))
	}
	return s
}

// reasons returns the reasons of failures with their numbers.
func (c *Counts) reasons() []string {
	seen := map[string]int{}
	for _, f := range c.Failures {
		seen[f.Reason]++
	}
	var out []string
	for _, r := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, fmt.Sprintf("%d x %s", seen[r], strings.ReplaceAll(r, "\n", "; ")))
	}
	return out
}

// Tally counts requests that begin in a period. It is safe for concurrent use.
type Tally struct {
	mu     sync.Mutex // guards all below
	counts Counts
	open   int           // requests in flight
	closed bool          // no more will begin
	done   chan struct{} // closed when the tally is closed and no request is in flight
}

// NewTally returns an open tally.
func NewTally() *Tally { return &Tally{counts: newCounts(), done: make(chan struct{})} }

// begin registers a request. It returns false if the tally is closed.
func (t *Tally) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.open++
	return true
}

// end adds the result of a request that began.
func (t *Tally) end(started time.Time, took time.Duration, status int, a Answer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.counts
	c.Requests++
	c.Statuses[status]++
	c.latencies = append(c.latencies, took)
	c.add(a)
	if err != nil {
		c.Failed++
		if len(c.Failures) < maxFailures {
			c.Failures = append(c.Failures, Failure{started, took, err.Error()})
		}
	}
	t.open--
	t.settle()
}

// close refuses further requests. done is closed when the last one has ended.
func (t *Tally) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.settle()
	}
}

// settle is called with the lock held.
func (t *Tally) settle() {
	if t.closed && t.open == 0 {
		close(t.done)
	}
}

// Counts returns the results so far.
func (t *Tally) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Statuses, c.Versions, c.Instances = maps.Clone(c.Statuses), maps.Clone(c.Versions), maps.Clone(c.Instances)
	c.Failures, c.latencies = slices.Clone(c.Failures), slices.Clone(c.latencies)
	return c
}

// merge adds the results of o.
func (c *Counts) merge(o Counts) {
	c.Requests += o.Requests
	c.Failed += o.Failed
	c.Retried += o.Retried
	for k, v := range o.Statuses {
		c.Statuses[k] += v
	}
	for k, v := range o.Versions {
		c.Versions[k] += v
	}
	for k, v := range o.Instances {
		c.Instances[k] += v
	}
	c.Failures = append(c.Failures, o.Failures...)
	c.latencies = append(c.latencies, o.latencies...)
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
