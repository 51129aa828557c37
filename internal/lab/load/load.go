package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"fortio.org/fortio/fhttp"
	"fortio.org/fortio/periodic"
	"fortio.org/log"
)

// Options configure a load.
type Options struct {
	URL         string        `json:"url"`
	Host        string        `json:"host,omitempty"` // of requests; "": the URL's
	Connections int           `json:"connections"`
	Rate        float64       `json:"rate,omitempty"` // requests a second, of all connections; 0: each connection sends its next request at once
	Duration    time.Duration `json:"duration"`
	HTTP2       bool          `json:"http2,omitempty"` // to URL, without TLS; else HTTP/1.1
	// OpenLoop sends at fixed times, whether or not responses are late, and counts latencies from these times. It needs
	// a rate and does not use Fortio.
	OpenLoop bool `json:"open_loop,omitempty"`
}

// Result is the result of a load. Times are in milliseconds.
type Result struct {
	Requests int64   `json:"requests"`
	Failed   int64   `json:"failed"` // responses other than 200, and missing ones
	Took     float64 `json:"took_s"`
	QPS      float64 `json:"qps"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P99      float64 `json:"p99_ms"`
	Max      float64 `json:"max_ms"`
	CPU      float64 `json:"cpu_s"` // of the process that sent
}

// resolution of the histogram: percentiles are interpolated within its buckets, which have this width for the first
// milliseconds and are wider above.
const resolution = 10 * time.Microsecond

// Check validates the options.
func (o *Options) Check() error {
	switch {
	case o.URL == "":
		return errors.New("load: needs a URL")
	case o.Connections < 1 || o.Duration <= 0 || o.Rate < 0:
		return fmt.Errorf("load: needs connections, a duration, and a rate that is not negative: %+v", *o)
	case o.OpenLoop && (o.Rate < 1 || o.HTTP2):
		return fmt.Errorf("load: an open loop needs a rate and HTTP/1.1: %+v", *o)
	}
	return nil
}

// Run sends requests until its time is over. It opens the connections before, and with Fortio sends a request on each.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.OpenLoop {
		return openLoop(ctx, o)
	}
	log.SetLogLevel(log.Error)
	stop := periodic.NewAborter()
	defer context.AfterFunc(ctx, func() { stop.Abort(false) })()
	r, err := fhttp.RunHTTPTest(&fhttp.HTTPRunnerOptions{
		RunnerOptions: periodic.RunnerOptions{
			QPS: perSecond(o.Rate), Duration: o.Duration, NumThreads: o.Connections, Resolution: resolution.Seconds(),
			Percentiles: percentiles, Out: io.Discard, Stop: stop, Uniform: true,
		},
		HTTPOptions: o.http(),
	})
	if err != nil {
		return nil, fmt.Errorf("load on %s: %w", o.URL, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return resultOf(r), nil
}

var percentiles = []float64{50, 90, 99}

func (o *Options) http() fhttp.HTTPOptions {
	h := fhttp.HTTPOptions{URL: o.URL, NumConnections: o.Connections, H2: o.HTTP2, DisableFastClient: o.HTTP2, HTTPReqTimeOut: requestTimeout}
	h.Init(o.URL)
	if o.Host != "" {
		_ = h.AddAndValidateExtraHeader("Host: " + o.Host) // the only error is a missing colon
	}
	return h
}

// requestTimeout is far longer than a proxy may take.
const requestTimeout = 10 * time.Second

// perSecond returns Fortio's rate: below 0 is unlimited.
func perSecond(rate float64) float64 {
	if rate == 0 {
		return -1
	}
	return rate
}

func resultOf(r *fhttp.HTTPRunnerResults) *Result {
	d := r.DurationHistogram
	out := &Result{Requests: d.Count, Took: r.ActualDuration.Seconds(), QPS: r.ActualQPS, Max: 1000 * d.Max}
	for code, n := range r.RetCodes {
		if code != http.StatusOK {
			out.Failed += n
		}
	}
	for i, into := range []*float64{&out.P50, &out.P90, &out.P99} {
		if i < len(d.Percentiles) {
			*into = 1000 * d.Percentiles[i].Value
		}
	}
	return out
}
