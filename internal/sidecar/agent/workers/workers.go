// Package workers reports the load of each worker thread of an Envoy: its connections, from Envoy's statistics, and its
// CPU time, from the kernel.
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
	Connections uint64  `json:"connections"` // open connections of clients, without scrapers'
	CPU         float64 `json:"cpu"`         // share of a CPU, from 0 to 1; -1: unknown
}

// Report describes the workers of one sidecar.
type Report struct {
	At          time.Time `json:"at"`
	Over        float64   `json:"overSeconds,omitempty"` // the time that CPU is the mean of; 0: no previous sample
	Concurrency int       `json:"concurrency"`           // as configured; 0: one for each core
	Because     string    `json:"because"`               // why Envoy has so many workers
	Workers     []Worker  `json:"workers"`
	Imbalance   string    `json:"imbalance,omitempty"` // empty: the load is even
	Advice      string    `json:"advice,omitempty"`
	Process     Process   `json:"process"`
}

// ConnectionsFilter matches the statistics that Connections reads.
const ConnectionsFilter = `^listener\..*\.worker_\d+\.downstream_cx_active$`

var workerStat = regexp.MustCompile(`^listener\.(.+)\.worker_(\d+)\.downstream_cx_active$`)

// Connections sums Envoy's statistics by worker. It skips the listeners in except, named as in statistics, because they
// serve no traffic.
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

// Sample is the state of a process at one time.
type Sample struct {
	At          time.Time
	PID         int
	Connections map[int]uint64
	CPU         map[int]time.Duration // used since the start of the thread
}

// Compare reports the difference of two samples. CPU is unknown if they are of different processes.
func Compare(last, now Sample, concurrency int, because string) Report {
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

// Limits for an imbalance. With fewer connections chance alone spreads them unevenly.
const (
	fewConnections = 8   // for each worker
	unevenFrom     = 2.0 // connections of a worker, divided by the mean
	busyFrom       = 0.8 // of a CPU
	idleBelow      = 0.2 // of a CPU
)

// judge sets Imbalance and Advice.
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
		r.Advice = fmt.Sprintf("all workers are busy: give the sidecar more CPUs, and one worker for each (concurrency is %d by %s)", r.Concurrency, r.Because)
	}
}
