// Package workers tells what each worker thread of an Envoy does: its connections, from
// Envoy's statistics, and its CPU time, from the kernel.
package workers

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Worker is one worker thread.
type Worker struct {
	Worker      int     `json:"worker"`
	Connections uint64  `json:"connections"` // open ones of clients, but those of scrapers
	CPU         float64 `json:"cpu"`         // how much of a CPU it used, from 0 to 1; -1: not known
}

// Report is what one sidecar says of its workers.
type Report struct {
	At          time.Time `json:"at"`
	Over        float64   `json:"overSeconds,omitempty"` // what CPU is the mean of; 0: there was no look before
	Concurrency int       `json:"concurrency"`           // as set; 0: one a core
	Because     string    `json:"because"`               // why so many
	Workers     []Worker  `json:"workers"`
	Imbalance   string    `json:"imbalance,omitempty"` // empty: there is none worth telling
	Advice      string    `json:"advice,omitempty"`
	Process     Process   `json:"process"`
}

// ConnectionsFilter matches the statistics that Connections reads.
const ConnectionsFilter = `^listener\..*\.worker_\d+\.downstream_cx_active$`

var workerStat = regexp.MustCompile(`^listener\.(.+)\.worker_(\d+)\.downstream_cx_active$`)

// Connections adds up Envoy's statistics by worker. The listeners in except (by the names
// that they have in statistics) serve no traffic.
func Connections(stats map[string]uint64, except ...string) map[int]uint64 {
	out := map[int]uint64{}
	for name, n := range stats {
		m := workerStat.FindStringSubmatch(name)
		if m == nil || slices.Contains(except, m[1]) || strings.HasPrefix(m[1], "envoy_internal_") {
			continue
		}
		if worker, err := strconv.Atoi(m[2]); err == nil {
			out[worker] += n
		}
	}
	return out
}

// Look is what was seen of a process at one time.
type Look struct {
	At          time.Time
	PID         int
	Connections map[int]uint64
	CPU         map[int]time.Duration // used since the thread began
}

// Compare makes a report of two looks at the same process; of one, where last is of another
// process or none.
func Compare(last, now Look, concurrency int, because string) Report {
	r := Report{At: now.At, Concurrency: concurrency, Because: because, Workers: []Worker{}}
	if last.PID == now.PID && now.At.After(last.At) && len(last.CPU) > 0 {
		r.Over = now.At.Sub(last.At).Seconds()
	}
	seen := map[int]bool{}
	for n := range now.Connections {
		seen[n] = true
	}
	for n := range now.CPU {
		seen[n] = true
	}
	for n := range seen {
		w := Worker{Worker: n, Connections: now.Connections[n], CPU: -1}
		if used, ok := now.CPU[n]; ok && r.Over > 0 {
			w.CPU = max(0, (used-last.CPU[n]).Seconds()/r.Over)
		}
		r.Workers = append(r.Workers, w)
	}
	slices.SortFunc(r.Workers, func(a, b Worker) int { return cmp.Compare(a.Worker, b.Worker) })
	r.judge()
	return r
}

// What is worth telling: connections enough that chance does not spread them so, and CPU
// that is at its end.
const (
	fewConnections = 8   // a worker
	unevenFrom     = 2.0 // the most of a worker, over the mean
	busyFrom       = 0.8 // of a CPU
	idleBelow      = 0.2
)

// judge finds what is uneven, and whether more workers would help.
func (r *Report) judge() {
	if len(r.Workers) == 0 {
		return
	}
	most := slices.MaxFunc(r.Workers, func(a, b Worker) int { return cmp.Compare(a.Connections, b.Connections) })
	busiest := slices.MaxFunc(r.Workers, func(a, b Worker) int { return cmp.Compare(a.CPU, b.CPU) })
	idlest := slices.MinFunc(r.Workers, func(a, b Worker) int { return cmp.Compare(a.CPU, b.CPU) })
	var total uint64
	for _, w := range r.Workers {
		total += w.Connections
	}
	mean := float64(total) / float64(len(r.Workers))
	switch {
	case len(r.Workers) > 1 && mean >= fewConnections && float64(most.Connections) >= unevenFrom*mean:
		r.Imbalance = fmt.Sprintf("worker %d has %d of %d connections, %.1f times the mean", most.Worker, most.Connections, total, float64(most.Connections)/mean)
	case len(r.Workers) > 1 && busiest.CPU >= busyFrom && idlest.CPU < idleBelow:
		r.Imbalance = fmt.Sprintf("worker %d uses %.0f%% of a CPU, worker %d %.0f%%", busiest.Worker, 100*busiest.CPU, idlest.Worker, 100*max(0, idlest.CPU))
	}
	if idlest.CPU >= busyFrom {
		r.Advice = fmt.Sprintf("all workers are busy: give the sidecar more CPU, and a worker for each (concurrency is %d by %s)", r.Concurrency, r.Because)
	}
}
