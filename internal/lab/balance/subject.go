package balance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/lab/bench"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/load"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/lab/threads"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// subject is a number of connections of one protocol to one sidecar.
type subject struct {
	pair        *pair.Pair
	admin       *envoy.Admin
	filter      string // of the statistics to read
	http2       bool
	connections int
	phase       time.Duration
}

func newSubject(p *pair.Pair, http2 bool, connections int, phase time.Duration) (*subject, error) {
	address, err := bench.Address(p)
	if err != nil {
		return nil, err
	}
	return &subject{pair: p, admin: envoy.NewAdmin(p.Server.Admin), filter: statsFilter(address), http2: http2, connections: connections, phase: phase}, nil
}

// Alone starts a server's sidecar with the generated configuration, for requests over HTTP/1.1. It measures Uneven and
// nothing else that other experiments need.
func Alone(ctx context.Context, m *pair.Mesh, workers, connections int, phase time.Duration) (experiment.Subject, error) {
	p, err := m.Pair(ctx, alone(workers))
	if err != nil {
		return nil, err
	}
	s, err := newSubject(p, false, connections, phase)
	if err != nil {
		p.Stop()
		return nil, err
	}
	return &own{s}, nil
}

// own is a subject that starts and stops its pair.
type own struct{ *subject }

// Measure implements experiment.Subject.
func (s *own) Measure(ctx context.Context, r experiment.Round) (experiment.Sample, error) {
	all, err := s.subject.Measure(ctx, r)
	return experiment.Sample{Uneven: all[Uneven]}, err
}

// Stop implements experiment.Subject.
func (s *own) Stop() {
	s.subject.Stop()
	s.pair.Stop()
}

// Stop implements experiment.Subject.
func (s *subject) Stop() { s.admin.Close() }

// Measure implements experiment.Subject. It counts the connections of workers during a load.
func (s *subject) Measure(ctx context.Context, _ experiment.Round) (experiment.Sample, error) {
	sample, err := s.measure(ctx, s.phase)
	for phase := 2 * s.phase; errors.Is(err, errTooShort) && phase <= maxLonger*s.phase; phase *= 2 {
		sample, err = s.measure(ctx, phase)
	}
	return sample, err
}

func (s *subject) measure(ctx context.Context, phase time.Duration) (experiment.Sample, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	before, err := threads.Read(s.pair.Server.Pid)
	if err != nil {
		return nil, err
	}
	counts, result, err := s.loaded(ctx, phase)
	if err != nil {
		return nil, err
	}
	after, err := threads.Read(s.pair.Server.Pid)
	if err != nil {
		return nil, err
	}
	sample := sampleOf(counts)
	sample[metricQPS], sample[metricP99] = result.QPS, result.P99
	sample[metricCPU] = toMean(seconds(after.Sub(before).Workers))
	return sample, nil
}

// settleTime is how long the connections of the last load may take to close.
const settleTime = 10 * time.Second

// settle waits until the connections of the last load are closed.
func (s *subject) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		counts, err := s.counts(ctx)
		if err == nil && total(counts) == 0 {
			return nil
		}
		if clock.Sleep(ctx, lookEvery) != nil {
			return errors.Join(fmt.Errorf("%.0f connections of the last load are still open: %w", total(counts), context.Cause(ctx)), err)
		}
	}
}

// errTooShort is the error of a load that ended before all of its connections were open, as happens on a busy machine.
var errTooShort = errors.New("connections were open at the same time")

// maxLonger limits by which factor a load is prolonged for that.
const maxLonger = 16

// loaded counts the connections of workers during a phase in which a load has all connections open.
func (s *subject) loaded(ctx context.Context, phase time.Duration) (counts []float64, result *load.Result, err error) {
	before, err := s.spoken(ctx)
	if err != nil {
		return nil, nil, err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan []float64, 1)
	go func() { seen <- s.look(looking) }()
	result, err = s.pair.Load(ctx, load.Options{Connections: s.connections, Duration: phase, HTTP2: s.http2})
	stop()
	counts = <-seen
	switch {
	case err != nil:
		return nil, nil, err
	case result.Failed > 0:
		return nil, nil, fmt.Errorf("%d of %d requests failed", result.Failed, result.Requests)
	case int(total(counts)) != s.connections:
		return nil, nil, fmt.Errorf("%.0f of %d %w", total(counts), s.connections, errTooShort)
	}
	after, err := s.spoken(ctx)
	if err == nil && after < before+uint64(s.connections) { //nolint:gosec // it is positive
		err = fmt.Errorf("%d connections used the requested protocol, want %d", after-before, s.connections)
	}
	return counts, result, err
}

// spoken returns how many connections have used the subject's protocol so far.
func (s *subject) spoken(ctx context.Context) (sum uint64, err error) {
	stats, err := s.admin.Stats(ctx, protocolStats)
	for name, n := range stats {
		if strings.HasSuffix(name, "http2_total") == s.http2 {
			sum += n
		}
	}
	return sum, err
}

// look polls until all connections are open, and returns the most that were open at the same time.
func (s *subject) look(ctx context.Context) (most []float64) {
	for {
		if counts, err := s.counts(ctx); err == nil && total(counts) > total(most) {
			most = counts
		}
		if int(total(most)) >= s.connections || clock.Sleep(ctx, lookEvery) != nil {
			return most
		}
	}
}

// lookEvery is the interval of polls.
const lookEvery = 10 * time.Millisecond

// counts returns the connections of each worker at the listener for requests.
func (s *subject) counts(ctx context.Context) ([]float64, error) {
	stats, err := s.admin.Stats(ctx, s.filter)
	if err != nil {
		return nil, err
	}
	return byWorker(workers.Connections(stats), s.pair.Concurrency), nil
}

// statsFilter matches the statistics of the load's listener.
func statsFilter(address string) string {
	return `^listener\.` + regexp.QuoteMeta(strings.ReplaceAll(address, ":", "_")) + `\.worker_\d+\.downstream_cx_active$`
}

func byWorker(connections map[int]uint64, n int) []float64 {
	out := make([]float64, n)
	for worker, count := range connections {
		if worker < n {
			out[worker] = float64(count)
		}
	}
	return out
}

// sampleOf returns the numbers of a sample.
func sampleOf(counts []float64) experiment.Sample {
	s := experiment.Sample{Uneven: toMean(counts), metricIdle: 0, metricNoticed: 0}
	look := workers.Sample{Connections: map[int]uint64{}}
	for i, n := range counts {
		s[workerKey(i)] = n
		look.Connections[i] = uint64(n)
		if n == 0 {
			s[metricIdle]++
		}
	}
	if report := workers.Compare(workers.Sample{}, look, len(counts), ""); report.Imbalance != "" {
		s[metricNoticed] = 1
	}
	return s
}

func workerKey(i int) string { return fmt.Sprintf("worker_%d", i) }

func total(counts []float64) (sum float64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// toMean returns the maximum divided by the mean; 1 if there is nothing.
func toMean(values []float64) float64 {
	sum := total(values)
	if sum == 0 {
		return 1
	}
	return slices.Max(values) * float64(len(values)) / sum
}

func seconds(list []time.Duration) (out []float64) {
	for _, d := range list {
		out = append(out, d.Seconds())
	}
	return out
}
