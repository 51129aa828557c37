package tracing

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a collector of traces.
type receiver struct {
	collectorv1.UnimplementedTraceServiceServer

	mu      sync.Mutex // guards the fields
	spans   []*tracev1.Span
	service string
	path    string
}

// Export implements OTLP over gRPC.
func (r *receiver) Export(_ context.Context, q *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range q.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				r.service = a.Value.GetStringValue()
			}
		}
		for _, s := range rs.ScopeSpans {
			r.spans = append(r.spans, s.Spans...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// ServeHTTP is OTLP over HTTP.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(req.Body)
	}
	text, err := io.ReadAll(body)
	q := &collectorv1.ExportTraceServiceRequest{}
	if err != nil || proto.Unmarshal(text, q) != nil {
		http.Error(w, "not understood", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.path = req.URL.Path
	r.mu.Unlock()
	_, _ = r.Export(req.Context(), q)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *receiver) all() []*tracev1.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans
}

func noEnv(string) (string, bool) { return "", false }

// receivers returns a collector for each protocol, with its --otlp-endpoint.
func receivers(t *testing.T) map[string]*receiver {
	t.Helper()
	overHTTP, overGRPC := &receiver{}, &receiver{}
	h := httptest.NewServer(overHTTP)
	t.Cleanup(h.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(g, overGRPC)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ln) }()
	t.Cleanup(func() { g.Stop(); require.NoError(t, await.From(t, ended)) })
	return map[string]*receiver{h.URL: overHTTP, "grpc://" + ln.Addr().String(): overGRPC}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(millis float64) time.Time {
	return start.Add(time.Duration(millis * float64(time.Millisecond)))
}

// run runs an exporter until its result is called.
func run(e *Exporter) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// tell makes a log follow one change: three proxies have it, one refuses, one disconnects, one is not
// concerned.
func tell(l *changelog.Log, rev model.Revision) {
	object := changelog.ChangedObject{Key: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"},
		Operation: changelog.Updated, ResourceVersion: "7", Observed: start, Committed: at(-3)}
	l.Begin(rev, []changelog.ChangedObject{object}, start)
	l.Mark(rev, changelog.StageStore, at(0.1))
	l.Mark(rev, changelog.StageDerive, at(0.4))
	l.Mark(rev, changelog.StageTranslate, at(0.6))
	l.Resources(rev, 2, 672)
	l.Published(rev, 6, at(0.7))
	l.Sent(rev, at(1))
	for i, o := range []struct {
		outcome distribution.Outcome
		at      float64
		text    string
	}{{distribution.NotConcerned, 0.8, ""}, {distribution.ACKed, 2, ""}, {distribution.ACKed, 3.1, ""}, {distribution.NACKed, 2.5, "LDS a: no"}, {distribution.Gone, 2.7, ""}, {distribution.ACKed, 1.5, ""}} {
		p := &model.Proxy{ID: "node" + string(rune('0'+i)), Name: "web" + string(rune('0'+i)), Namespace: "shop"}
		l.RecordSettlement(distribution.Settlement{Proxy: p, From: rev - 1, To: rev, Outcome: o.outcome, At: at(o.at), Text: o.text})
		l.Settled(rev-1, rev, o.outcome, at(o.at))
	}
}

func newLog(m *changelog.Metrics, e changelog.Tracer) *changelog.Log {
	l := changelog.New(8, slog.New(slog.DiscardHandler), m)
	l.Tracers = []changelog.Tracer{e}
	return l
}

func length(s *tracev1.Span) time.Duration {
	return time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano)
}

// TestChangeIsATrace checks for each protocol that the spans are the change log's stages, that each begins
// where the one before ends, and that they add up to the whole.
func TestChangeIsATrace(t *testing.T) {
	for endpoint, r := range receivers(t) {
		t.Run(endpoint[:4], func(t *testing.T) {
			c, err := Read(endpoint, noEnv)
			require.NoError(t, err)
			m := changelog.NewMetrics()
			e, err := New(t.Context(), c, m, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			stop := run(e)
			l := newLog(m, e)
			tell(l, 1)
			stop() // it sends the rest
			if endpoint[:4] == "http" {
				require.Equal(t, "/v1/traces", r.path)
			}
			require.Equal(t, "moonsail", r.service)
			change, ok := l.Change(1)
			require.True(t, ok)
			requireTrace(t, r.all(), &change)
		})
	}
}

func requireTrace(t *testing.T, spans []*tracev1.Span, c *changelog.Change) {
	t.Helper()
	byName := map[string]*tracev1.Span{}
	for _, s := range spans {
		require.Nil(t, byName[s.Name], "two spans %s", s.Name)
		byName[s.Name] = s
	}
	root := byName["change VirtualService/shop/reviews"]
	require.NotNil(t, root)
	require.Empty(t, root.ParentSpanId)
	require.EqualValues(t, start.UnixNano(), root.StartTimeUnixNano)
	stages, total := c.Timeline.Split(time.Nanosecond)
	require.Equal(t, total, length(root))
	sum, end := time.Duration(0), root.StartTimeUnixNano
	for _, stage := range changelog.Stages {
		s := byName[stage.String()]
		require.NotNil(t, s, stage)
		require.Equal(t, root.SpanId, s.ParentSpanId)
		require.Equal(t, root.TraceId, s.TraceId)
		require.Equal(t, end, s.StartTimeUnixNano, "%s begins where the stage before ends", stage)
		require.Equal(t, stages[stage], length(s), stage)
		sum, end = sum+length(s), s.EndTimeUnixNano
	}
	require.Equal(t, length(root), sum, "the stages add up to the whole")
	require.Equal(t, tracev1.Status_STATUS_CODE_ERROR, root.Status.Code)
	require.Equal(t, "1 proxies refused it", root.Status.Message)
	for name, took := range map[string]float64{"web1": 1, "web2": 2.1, "web3": 1.5, "web4": 1.7, "web5": 0.5} {
		s := byName["proxy "+name+".shop"]
		require.NotNil(t, s, name)
		require.Equal(t, byName["ack"].SpanId, s.ParentSpanId)
		require.InDelta(t, took, float64(length(s))/1e6, 1e-3, name)
	}
	require.Nil(t, byName["proxy web0.shop"], "it was not concerned")
	require.Equal(t, "LDS a: no", byName["proxy web3.shop"].Status.Message)
	requireAttributes(t, root)
}

func requireAttributes(t *testing.T, root *tracev1.Span) {
	t.Helper()
	got := map[string]string{}
	for _, a := range root.Attributes {
		text := a.Value.GetStringValue()
		for _, v := range a.Value.GetArrayValue().GetValues() {
			text += "[" + v.GetStringValue() + "]"
		}
		if text == "" {
			text = time.Duration(a.Value.GetIntValue()).String()
		}
		got[a.Key] = text
	}
	for key, want := range map[string]string{
		"moonsail.objects": "[VirtualService/shop/reviews]", "moonsail.kinds": "[VirtualService]", "moonsail.resource_versions": "[7]",
		"moonsail.operations": "[updated]", "moonsail.revision": "1ns", "moonsail.proxies.concerned": "6ns", "moonsail.proxies.acked": "3ns",
		"moonsail.proxies.nacked": "1ns", "moonsail.proxies.gone": "1ns", "moonsail.proxies.not_concerned": "1ns", "moonsail.bytes": "672ns",
		"moonsail.state": "distributed", "moonsail.committed": "2026-01-02T03:04:04.997Z",
	} {
		require.Equal(t, want, got[key], key)
	}
}

func TestTraceDestination(t *testing.T) {
	const generic, traces, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	for name, c := range map[string]struct {
		endpoint string
		env      map[string]string
		want     Config
		fails    string
	}{
		"off":               {},
		"protocol alone":    {env: map[string]string{protocol: "grpc"}},
		"flag":              {endpoint: "http://c:4318", want: Config{protocolHTTP, "http://c:4318/v1/traces"}},
		"path":              {endpoint: "https://c/otlp", want: Config{protocolHTTP, "https://c/otlp"}},
		"grpc":              {endpoint: "grpc://c:4317", want: Config{protocolGRPC, "http://c:4317"}},
		"grpcs":             {endpoint: "grpcs://c:4317", want: Config{protocolGRPC, "https://c:4317"}},
		"flag and protocol": {endpoint: "http://c:4317", env: map[string]string{protocol: "grpc"}, want: Config{protocolGRPC, "http://c:4317"}},
		"variable":          {env: map[string]string{generic: "http://c:4318"}, want: Config{protocolHTTP, ""}},
		"of traces":         {env: map[string]string{traces: "http://c:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, want: Config{protocolGRPC, ""}},
		"disabled":          {endpoint: "http://c:4318", env: map[string]string{"OTEL_SDK_DISABLED": "true"}},
		"none":              {env: map[string]string{generic: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}},
		"another exporter":  {env: map[string]string{generic: "http://c:4318", "OTEL_TRACES_EXPORTER": "zipkin"}, fails: "OTEL_TRACES_EXPORTER=zipkin"},
		"json":              {env: map[string]string{generic: "http://c:4318", protocol: "http/json"}, fails: "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"},
		"no URL":            {endpoint: "c:4318", fails: `--otlp-endpoint "c:4318"`},
		"no host":           {endpoint: "http:///x", fails: "not a URL"},
		"scheme":            {endpoint: "ftp://c", fails: "unknown scheme: use http, https, grpc or grpcs"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(c.endpoint, func(k string) (string, bool) { v, ok := c.env[k]; return v, ok })
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want != Config{}, got.On())
		})
	}
}
