package concurrency

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/openloop"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/lab/threads"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
)

// subject is one load of one sidecar.
type subject struct {
	lab     *lab
	pair    *pair.Pair
	address string
	load    int // percent; all
}

// Stop implements experiment.Subject. It does nothing: Bench stops the sidecars.
func (*subject) Stop() {}

// Measure implements experiment.Subject.
func (s *subject) Measure(ctx context.Context, _ experiment.Round) (experiment.Sample, error) {
	l := &openloop.Load{Address: s.address, Hosts: []string{s.pair.Host}, Conns: s.lab.options.Connections}
	if s.load != all {
		l.Rate = max(1, int(s.lab.full*float64(s.load)/100))
	}
	before, err := threads.Read(s.pair.Server.Pid)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	out, err := l.Run(ctx, s.lab.options.Phase)
	took := time.Since(begun)
	if err != nil {
		return nil, err
	}
	after, err := threads.Read(s.pair.Server.Pid)
	if err != nil {
		return nil, err
	}
	if out.Failed > 0 || len(out.Latencies) == 0 {
		return nil, fmt.Errorf("%d of %d requests failed", out.Failed, len(out.Latencies))
	}
	return sampleOf(out.Latencies, after.Sub(before), took, s.lab.options.Phase, l.Rate), nil
}

// setupTime is how long connections may take to open before the first request is due.
const setupTime = 50 * time.Millisecond

// sampleOf returns the numbers of a load that took as long as took and should have taken phase. Without a rate, no
// request is due.
func sampleOf(latencies []time.Duration, cpu threads.CPU, took, phase time.Duration, rate int) experiment.Sample {
	n := float64(len(latencies))
	s := experiment.Sample{
		metricQPS:  n / took.Seconds(),
		metricMain: percent(cpu.Main, took),
		metricCost: cpu.Total().Seconds() * 1e6 / n,
		metricP50:  millis(percentile(latencies, 0.5)), metricP99: millis(percentile(latencies, 0.99)),
	}
	if rate > 0 {
		s[sampleOffered], s[metricKept] = float64(rate), 100*min(1, phase.Seconds()/(took-setupTime).Seconds())
	}
	look := workers.Sample{At: time.Unix(0, int64(took)), PID: 1, CPU: map[int]time.Duration{}, Connections: map[int]uint64{}}
	start := workers.Sample{At: time.Unix(0, 0), PID: 1, CPU: map[int]time.Duration{}}
	for i, used := range cpu.Workers {
		s[workerKey(i)] = percent(used, took)
		s[metricBusiest] = max(s[metricBusiest], percent(used, took))
		look.CPU[i], start.CPU[i] = used, 0
	}
	s[metricMean] = percent(cpu.AllWorkers(), took) / float64(max(1, len(cpu.Workers)))
	s[metricAdvised] = 0
	if workers.Compare(start, look, len(cpu.Workers), "").Advice != "" {
		s[metricAdvised] = 1
	}
	return s
}

func workerKey(i int) string { return fmt.Sprintf("worker_%d", i) }

func percent(used, of time.Duration) float64 { return 100 * used.Seconds() / of.Seconds() }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile returns the nearest rank. It sorts the list.
func percentile(list []time.Duration, share float64) time.Duration {
	slices.Sort(list)
	return list[max(0, int(math.Ceil(share*float64(len(list))))-1)]
}
