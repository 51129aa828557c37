package load

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/openloop"
)

// openLoop sends requests at fixed times.
func openLoop(ctx context.Context, o Options) (*Result, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	l := &openloop.Load{Address: u.Host, Hosts: []string{o.Host}, Path: u.RequestURI(), Conns: o.Connections, Rate: int(o.Rate)}
	if o.Host == "" {
		l.Hosts[0] = u.Host
	}
	began := time.Now()
	out, err := l.Run(ctx, o.Duration)
	if err != nil {
		return nil, fmt.Errorf("load on %s: %w", o.URL, err)
	}
	return openResult(out, time.Since(began)), nil
}

// openResult computes exact order statistics of all latencies.
func openResult(out *openloop.Outcome, took time.Duration) *Result {
	n := len(out.Latencies)
	r := &Result{Requests: int64(n), Failed: int64(out.Failed), Took: took.Seconds(), QPS: float64(n) / took.Seconds()}
	if n == 0 {
		return r
	}
	slices.Sort(out.Latencies)
	at := func(share float64) float64 {
		return 1000 * out.Latencies[min(int(share*float64(n)), n-1)].Seconds()
	}
	r.P50, r.P90, r.P99, r.Max = at(0.5), at(0.9), at(0.99), at(1)
	return r
}
