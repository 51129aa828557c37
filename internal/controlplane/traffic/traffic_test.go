package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mesh has proxies named p0, p1, ... whose metrics are text.
type mesh struct {
	proxies []server.ProxyState
	text    func(proxy string) ([]byte, error)
	asked   atomic.Int64
	now     atomic.Int64 // requests in progress
	most    atomic.Int64 // the most of them
}

func meshOf(n int, text func(string) ([]byte, error)) *mesh {
	m := &mesh{text: text}
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		m.proxies = append(m.proxies, server.ProxyState{ID: name, Name: name, Namespace: "shop", Proxy: &model.Proxy{ID: name}})
	}
	return m
}

func (m *mesh) Proxies() []server.ProxyState { return m.proxies }

func (m *mesh) Metrics(_ context.Context, proxy, _ string) ([]byte, error) {
	m.asked.Add(1)
	m.most.Store(max(m.most.Load(), m.now.Add(1)))
	defer m.now.Add(-1)
	return m.text(proxy)
}

func (m *mesh) scraper() *scraper {
	return &scraper{proxies: m, agents: m, known: map[string]*history{}}
}

func series(metric, reporter, from, to, more string, value float64) string {
	return fmt.Sprintf(`%s{reporter=%q,source_workload="%s-v1",source_workload_namespace="shop",source_canonical_service=%q,source_canonical_revision="v1",`+
		`destination_workload="%s-v1",destination_workload_namespace="shop",destination_canonical_service=%q,destination_canonical_revision="v1",`+
		`destination_service_name=%q,destination_service_namespace="shop",request_protocol="http"%s} %g`+"\n", metric, reporter, from, from, to, to, to, more, value)
}

// counters are the metrics of a proxy that has made n calls, of which a tenth failed.
func counters(n float64) string {
	return "# TYPE istio_requests_total counter\n" +
		series(metricRequests, "source", "web", "cart", `,response_code="200"`, 0.9*n) +
		series(metricRequests, "source", "web", "cart", `,response_code="503"`, 0.1*n) +
		series(metricRequests, "destination", "web", "cart", `,response_code="200",connection_security_policy="mutual_tls"`, 0.6*n) +
		series(metricRequests, "destination", "web", "cart", `,response_code="200",connection_security_policy="none"`, 0.3*n) +
		series(metricDuration, "source", "web", "cart", `,le="5"`, 0.5*n) +
		series(metricDuration, "source", "web", "cart", `,le="10"`, n) +
		series(metricDuration, "source", "web", "cart", `,le="+Inf"`, n) +
		"envoy_server_live{} 1\nistio_agent_startup_duration_seconds 1\n"
}

func TestRatesOfProxies(t *testing.T) {
	n := 100.0
	m := meshOf(2, func(string) ([]byte, error) { return []byte(counters(n)), nil })
	s := m.scraper()
	g := s.measure(t.Context())
	require.False(t, g.Rated)
	require.Len(t, g.Edges, 1)
	require.InDelta(t, 200, g.Edges[0].Client.Total, 0.01)
	require.Zero(t, g.Edges[0].Client.Requests, "one measurement has no rate")

	for _, h := range s.known {
		h.at = h.at.Add(-10 * time.Second)
	}
	n = 200
	g = s.measure(t.Context())
	require.True(t, g.Rated)
	e := g.Edges[0]
	require.Equal(t, Call{End{"shop", "web-v1", "web", "v1"}, End{"shop", "cart-v1", "cart", "v1"}, Target{"shop", "cart"}, "http"}, e.Call)
	require.InDelta(t, 20, e.Client.Requests, 0.1, "two proxies with 10 a second")
	require.InDelta(t, 2, e.Client.Errors, 0.1)
	require.InDelta(t, 12, e.Server.Mutual, 0.1)
	require.InDelta(t, 18, e.Server.Requests, 0.1)
	require.InDelta(t, 5, e.Client.P50, 0.01)
	require.InDelta(t, 9.9, e.Client.P99, 0.01)

	for _, h := range s.known {
		h.at = h.at.Add(-10 * time.Second)
	}
	n = 50 // the Envoys were restarted
	require.InDelta(t, 10, s.measure(t.Context()).Edges[0].Client.Requests, 0.1)

	m.proxies = m.proxies[:1]
	require.InDelta(t, 50, s.measure(t.Context()).Edges[0].Client.Total, 0.1, "a proxy that is gone does not count")
}

// TestLongConnections measures connections that were opened before.
func TestLongConnections(t *testing.T) {
	n := 1e6
	m := meshOf(1, func(string) ([]byte, error) {
		return []byte(series(metricOpened, "destination", "web", "db", `,connection_security_policy="mutual_tls"`, 4) +
			series(metricSent, "destination", "web", "db", `,connection_security_policy="mutual_tls"`, n) +
			series(metricReceived, "destination", "web", "db", `,connection_security_policy="mutual_tls"`, 2*n) +
			series(metricSent, "destination", "web", "db", `,connection_security_policy="none"`, n)), nil
	})
	s := m.scraper()
	s.measure(t.Context())
	s.known["p0"].at = s.known["p0"].at.Add(-10 * time.Second)
	n = 2e6
	server := s.measure(t.Context()).Edges[0].Server
	require.Zero(t, server.Requests)
	require.InDelta(t, 4e5, server.Bytes, 1e4)
	require.InDelta(t, 3e5, server.MutualBytes, 1e4)
}

func TestProxyThatDoesNotAnswer(t *testing.T) {
	m := meshOf(3, func(proxy string) ([]byte, error) {
		if proxy == "p1" {
			return nil, errors.New("refused")
		}
		return []byte(counters(1)), nil
	})
	m.proxies = append(m.proxies, server.ProxyState{ID: "agent", Proxy: &model.Proxy{Extensions: true}}, server.ProxyState{ID: "names", Proxy: &model.Proxy{Names: true}})
	g := m.scraper().measure(t.Context())
	require.Equal(t, Coverage{Connected: 3, Measured: 2, Failed: 1}, g.Proxies)
	require.Equal(t, []string{"p1.shop: refused"}, g.Failures)
}

// TestProxyThatNoLongerAnswers checks that old rates of a proxy are not shown as new ones.
func TestProxyThatNoLongerAnswers(t *testing.T) {
	n, failure := 100.0, error(nil)
	m := meshOf(1, func(string) ([]byte, error) { return []byte(counters(n)), failure })
	s := m.scraper()
	measure := func() Edge {
		for _, h := range s.known {
			h.at = h.at.Add(-10 * time.Second)
		}
		g := s.measure(t.Context())
		require.Len(t, g.Edges, 1)
		return g.Edges[0]
	}
	measure()
	n = 200
	require.InDelta(t, 10, measure().Client.Requests, 0.1)

	failure = errors.New("refused")
	e := measure()
	require.Zero(t, e.Client.Requests)
	require.Zero(t, e.Client.Errors)
	require.InDelta(t, 200, e.Client.Total, 0.01, "the call is known")

	n, failure = 400, nil
	require.InDelta(t, 10, measure().Client.Requests, 0.1, "since its last answer, 20 seconds ago")
}

// agentsFunc implements Agents.
type agentsFunc func(ctx context.Context, proxy string) ([]byte, error)

func (f agentsFunc) Metrics(ctx context.Context, proxy, _ string) ([]byte, error) {
	return f(ctx, proxy)
}

// TestTimeForAMeasurementEnds checks that proxies that do not answer in time do not keep the others out of the graph.
func TestTimeForAMeasurementEnds(t *testing.T) {
	m := meshOf(3*concurrent, nil)
	hung := map[string]bool{}
	for _, p := range m.proxies[:concurrent] {
		hung[p.ID] = true
	}
	s := m.scraper()
	// round measures until all requests in progress are to hung proxies.
	round := func() *Graph {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiting atomic.Int64
		s.agents = agentsFunc(func(ctx context.Context, proxy string) ([]byte, error) {
			if !hung[proxy] {
				return []byte(counters(1)), ctx.Err()
			}
			if waiting.Add(1) == concurrent {
				cancel()
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		return s.measure(ctx)
	}
	g := round()
	require.Equal(t, Coverage{Connected: 3 * concurrent, Failed: concurrent}, g.Proxies, "others are not asked, and have not failed")
	require.False(t, g.Complete)
	g = round()
	require.Equal(t, Coverage{Connected: 3 * concurrent, Measured: 2 * concurrent, Failed: concurrent}, g.Proxies, "the others come first")
	require.True(t, g.Complete)
	m.proxies = nil
	require.Zero(t, s.measure(t.Context()).Proxies)
}

func TestBounds(t *testing.T) {
	t.Run("requests", func(t *testing.T) {
		m := meshOf(maxAsked+50, func(string) ([]byte, error) { return []byte(counters(1)), nil })
		s := m.scraper()
		require.Equal(t, maxAsked, s.measure(t.Context()).Proxies.Measured)
		require.Equal(t, maxAsked+50, s.measure(t.Context()).Proxies.Measured, "the next measurement continues")
		require.EqualValues(t, 2*maxAsked, m.asked.Load())
		require.LessOrEqual(t, m.most.Load(), int64(concurrent))
	})
	t.Run("calls of a proxy", func(t *testing.T) {
		var text strings.Builder
		for i := range maxCalls + 10 {
			text.WriteString(series(metricRequests, "source", "web", fmt.Sprintf("s%d", i), "", float64(i)))
		}
		m := meshOf(1, func(string) ([]byte, error) { return []byte(text.String()), nil })
		g := m.scraper().measure(t.Context())
		require.Len(t, g.Edges, maxCalls)
		require.Contains(t, g.Failures[0], "it calls more than 1000 others: the rest is left out")
		require.Zero(t, g.Proxies.Failed)
	})
	t.Run("edges", func(t *testing.T) {
		all := map[Call]*pair{}
		for i := range maxEdges + 7 {
			all[Call{Protocol: fmt.Sprint(i)}] = &pair{client: &sums{requests: float64(i)}}
		}
		list, leftOut := edges(all)
		require.Len(t, list, maxEdges)
		require.Equal(t, 7, leftOut)
		for _, e := range list {
			require.GreaterOrEqual(t, e.Client.Requests, 7.0, "the busiest stay")
		}
	})
	t.Run("edges without new connections", func(t *testing.T) {
		busy := Call{Protocol: "tcp"}
		all := map[Call]*pair{busy: {client: &sums{bytes: 100e6}}}
		for i := range maxEdges {
			all[Call{Protocol: fmt.Sprint(i)}] = &pair{client: &sums{requests: 1}}
		}
		list, leftOut := edges(all)
		require.Equal(t, 1, leftOut)
		require.True(t, slices.ContainsFunc(list, func(e Edge) bool { return e.Call == busy }), "its connections carry the most")
	})
}

func TestHostileMetrics(t *testing.T) {
	for _, line := range []string{
		`istio_requests_total`, `istio_requests_total{`, `istio_requests_total{a`, `istio_requests_total{a="`, `istio_requests_total{a="\`,
		`istio_requests_total{a="b"`, `istio_requests_total{a="b",`, `istio_requests_total{a="b"}`, `istio_requests_total{a="b"} x`,
		`istio_requests_total{a="b"} NaN`, `istio_requests_total{a="b"} +Inf`, `istio_requests_total{a="b"} 1e18`,
		`istio_requests_total{a="b"} -1`, `istio_other{a="b"} 1`, `istio_requests_total{} 1`,
	} {
		_, _, _, ok := parseLine(line)
		require.False(t, ok, line)
	}
	_, l, _, ok := parseLine(`istio_requests_total{a="` + strings.Repeat("x", maxLabel+1) + `",b="c"} 1`)
	require.True(t, ok)
	require.Equal(t, labelSet{"b": "c"}, l, "a long label is ignored")
	_, l, v, ok := parseLine(`istio_requests_total{a="q\"\\\n}, c=",b="<b>"} 1.5 1700000000000`)
	require.True(t, ok)
	require.Equal(t, labelSet{"a": "q\"\\\n}, c=", "b": "<b>"}, l)
	require.InDelta(t, 1.5, v, 0)
}

// TestGraphIsFinite checks that no metric of a proxy makes a graph that JSON cannot have.
func TestGraphIsFinite(t *testing.T) {
	values := []string{"+Inf", "NaN", "1e308", "9e17", "5e-324", "1"}
	var text strings.Builder
	for _, v := range values {
		for _, le := range append(values, "-Inf", "-1", "0", "5", "10") {
			line := series(metricDuration, "source", "web", "cart", fmt.Sprintf(`,le=%q`, le), 1)
			text.WriteString(strings.TrimSuffix(line, "1\n") + v + "\n")
		}
		for _, metric := range []string{metricRequests, metricSent} {
			text.WriteString(strings.TrimSuffix(series(metric, "source", "web", "cart", "", 1), "1\n") + v + "\n")
		}
	}
	s := meshOf(3, func(string) ([]byte, error) { return []byte(text.String()), nil }).scraper()
	for range 2 {
		g := s.measure(t.Context())
		_, err := json.Marshal(g)
		require.NoError(t, err)
		require.Len(t, g.Edges, 1)
		require.Positive(t, g.Edges[0].Client.Total)
		for _, h := range s.known { // the next measurement has rates
			for _, p := range h.now {
				p.client = &sums{}
			}
			h.at = time.Now()
		}
	}
}

// TestCallsKeepNoText checks the memory of calls, whose labels are parts of long lines.
func TestCallsKeepNoText(t *testing.T) {
	line := strings.TrimSuffix(series(metricRequests, "source", "web", "cart", `,response_code="200"`, 1), "\n")
	short, leftOut := parse([]byte(line+"\n"+line+strings.Repeat(" ", maxLine)+"\n"), 1)
	require.False(t, leftOut)
	require.Len(t, short, 1)
	for _, p := range short {
		require.InDelta(t, 1, p.client.requests, 0, "a long line is ignored")
	}

	_, labels, _, ok := parseLine(line)
	require.True(t, ok)
	call, _, _ := labels.call()
	clone := call.clone()
	require.Equal(t, call, clone)
	from := func(c *Call) []string {
		return []string{
			c.Source.Namespace, c.Source.Workload, c.Source.Service, c.Source.Version, c.Target.Namespace, c.Target.Name, c.Protocol,
			c.Destination.Namespace, c.Destination.Workload, c.Destination.Service, c.Destination.Version,
		}
	}
	for i, text := range from(&call) {
		require.NotEmpty(t, text)
		require.NotSame(t, unsafe.StringData(text), unsafe.StringData(from(&clone)[i]), text)
	}
}

func TestFullBucketsCountFurther(t *testing.T) {
	s := &sums{}
	for i := range maxBuckets + 1 {
		s.addBucket(float64(i), 1)
	}
	require.Len(t, s.buckets, maxBuckets)
	s.addSeries(metricDuration, labelSet{"le": "3"}, 2)
	require.Equal(t, bucket{3, 3}, s.buckets[3])
}

// TestNoRoom measures a proxy when the calls of others take all room.
func TestNoRoom(t *testing.T) {
	m := meshOf(2, func(proxy string) ([]byte, error) {
		if proxy == "p0" {
			return nil, errors.New("refused")
		}
		return []byte(counters(1)), nil
	})
	s := m.scraper()
	full := &history{now: map[Call]*pair{}}
	for i := range maxRecords + 1 {
		full.now[Call{Protocol: strconv.Itoa(i)}] = &pair{}
	}
	s.known["p0"] = full
	g := s.measure(t.Context())
	require.Equal(t, 1, g.Proxies.Failed)
	require.Equal(t, []string{"p0.shop: refused", "p1.shop: the control plane keeps 100000 calls of all proxies: the rest is left out"}, g.Failures)
	require.NotNil(t, s.known["p1"].now)
	require.Empty(t, s.known["p1"].now)
}

func TestFailed(t *testing.T) {
	for name, c := range map[string]struct {
		code, grpc string
		want       bool
	}{
		"ok": {"200", "", false}, "client's fault": {"404", "", false}, "server error": {"503", "", true}, "no answer": {"0", "", true},
		"gRPC ok": {"200", "0", false}, "gRPC not found": {"200", "5", false}, "gRPC unavailable": {"200", "14", true}, "TCP": {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, labelSet{"response_code": c.code, "grpc_response_status": c.grpc}.failed())
		})
	}
	for flags, want := range map[string]bool{"-": false, "DC": false, "UH": true, "UF,URX": true} {
		t.Run("TCP with "+flags, func(t *testing.T) {
			require.Equal(t, want, labelSet{"request_protocol": "tcp", "response_flags": flags}.failed())
		})
	}
}

// TestCalled checks kinds of failures, and restarts of a proxy.
func TestCalled(t *testing.T) {
	line := func(host, labels string, n int) string {
		return fmt.Sprintf("istio_requests_total{reporter=\"source\",destination_service=%q,%s} %d\n", host, labels, n)
	}
	text := line("a", `request_protocol="http",response_code="200",response_flags="-",destination_principal="spiffe://td/ns/shop/sa/a"`, 7) +
		line("a", `request_protocol="http",response_code="503",response_flags="UH",destination_principal="unknown"`, 2) +
		line("a", `request_protocol="grpc",response_code="200",grpc_response_status="14",response_flags="-",destination_principal="unknown"`, 1) +
		line("b", `request_protocol="http",response_code="404",response_flags="-",destination_principal="unknown"`, 3) +
		line("unknown", `response_code="404"`, 3) + "istio_requests_total{reporter=\"destination\",destination_service=\"a\"} 9\n"
	got := Called([]byte(text), 10)
	a := &Count{Requests: 10, Errors: 3, Failures: map[string]float64{"503 UH": 2, "gRPC 14": 1}, Reached: 8, Mutual: 7}
	require.Equal(t, map[string]*Count{"a": a, "b": {Requests: 3, Reached: 3}}, got)
	require.Len(t, Called([]byte(text), 1), 1)
	require.Equal(t, &Count{Requests: 4, Errors: 1, Failures: map[string]float64{"503 UH": 1}, Reached: 3, Mutual: 2},
		a.Since(&Count{Requests: 6, Errors: 2, Failures: map[string]float64{"503 UH": 1, "gRPC 14": 1}, Reached: 5, Mutual: 5}))
	require.Equal(t, a, a.Since(&Count{Requests: 11}), "the proxy has started again")
	many := ""
	for i := range 2 * maxFailures {
		many += line("a", fmt.Sprintf(`response_code="5%02d"`, i), 1)
	}
	require.Len(t, Called([]byte(many), 1)["a"].Failures, maxFailures)
}

// TestMeasuresOnlyWhileRead checks that a Meter asks nothing before its first reader and after its last.
func TestMeasuresOnlyWhileRead(t *testing.T) {
	m := meshOf(1, func(string) ([]byte, error) { return []byte(counters(1)), nil })
	meter := FromProxies(m, m)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); meter.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	require.Zero(t, m.asked.Load())
	first := meter.Graph()
	require.Empty(t, first.Edges, "it does not wait")
	require.Eventually(t, func() bool { return len(meter.Graph().Edges) == 1 }, 2*time.Minute, time.Millisecond)
	require.Positive(t, m.asked.Load())
	require.NotSame(t, meter.Graph(), meter.Graph(), "readers may change what they get")

	meter.read.Store(time.Now().Add(-2 * unwatched).UnixNano())
	require.Eventually(t, func() bool { return meter.newest.Load() == nil }, 2*time.Minute, time.Millisecond)
	require.Empty(t, meter.source.(*scraper).known, "nothing is kept")
}

func TestPrometheus(t *testing.T) {
	var queries atomic.Int64
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries.Add(1)
		user, password, _ := r.BasicAuth()
		if user != "me" || password != "secret" || r.URL.Path != "/sub/api/v1/query" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		query := r.FormValue("query")
		result := ""
		base := `"reporter":"destination","source_workload":"web-v1","source_workload_namespace":"shop","source_canonical_service":"web","destination_workload":"cart-v1","destination_workload_namespace":"shop","destination_service_name":"cart","destination_service_namespace":"shop","request_protocol":"http"`
		switch {
		case strings.Contains(query, metricRequests):
			result = `{"metric":{` + base + `,"response_code":"200","connection_security_policy":"mutual_tls"},"value":[1,"3"]},{"metric":{` + base + `,"response_code":"200"},"value":[1,"+Inf"]},{"metric":{` + base + `,"response_code":"500","connection_security_policy":"none"},"value":[1,"1"]}`
		case strings.Contains(query, metricDuration):
			result = `{"metric":{` + base + `,"le":"10"},"value":[1,"4"]},{"metric":{` + base + `,"le":"+Inf"},"value":[1,"4"]},{"metric":{` + base + `,"le":"5"},"value":[1,"NaN"]}`
		case strings.Contains(query, metricSent) && strings.Contains(query, "connection_security_policy"):
			result = `{"metric":{` + base + `,"connection_security_policy":"mutual_tls"},"value":[1,"500"]}`
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, result)
	}))
	defer prometheus.Close()
	at, err := url.Parse(prometheus.URL + "/sub")
	require.NoError(t, err)
	at.User = url.UserPassword("me", "secret")
	q := FromPrometheus(at).source.(*querier)
	defer q.forget()
	g := q.measure(t.Context())
	require.Empty(t, g.Failures)
	require.True(t, g.Complete)
	require.EqualValues(t, len(readMetrics), queries.Load())
	require.True(t, g.Rated)
	require.Len(t, g.Edges, 1)
	require.InDelta(t, 4, g.Edges[0].Server.Requests, 0)
	require.InDelta(t, 1, g.Edges[0].Server.Errors, 0)
	require.InDelta(t, 3, g.Edges[0].Server.Mutual, 0)
	require.InDelta(t, 500, g.Edges[0].Server.MutualBytes, 0)
	require.InDelta(t, 9.9, g.Edges[0].Server.P99, 0.01)
	require.Zero(t, g.Edges[0].Server.Total)

	at.User = url.UserPassword("me", "wrong")
	g = q.measure(t.Context())
	require.Len(t, g.Failures, len(readMetrics))
	require.False(t, g.Complete)
	require.Contains(t, g.Failures[0], "401")
	require.NotContains(t, strings.Join(g.Failures, ""), "wrong", "passwords are not shown")
}

func TestJoin(t *testing.T) {
	call := Call{Protocol: "http", Source: End{Workload: "b"}}
	one := &Graph{Rated: true, Complete: true, Proxies: Coverage{Connected: 1}, Edges: []Edge{{Call: call, Client: &Numbers{Requests: 1, Durations: []Duration{{0, 1, 1}}}}}}
	other := &Graph{Rated: true, Proxies: Coverage{Connected: 2}, Failures: []string{"x"}, Edges: []Edge{
		{Call: Call{Protocol: "http", Source: End{Workload: "a"}}},
		{Call: call, Client: &Numbers{Requests: 2, Durations: []Duration{{0, 1, 1}, {1, 0, 1}}}, Server: &Numbers{Mutual: 3, MutualBytes: 4}},
	}}
	one.Join(other)
	require.Equal(t, 3, one.Proxies.Connected)
	require.False(t, one.Complete, "the other is not")
	require.Equal(t, []string{"x"}, one.Failures)
	require.Equal(t, "a", one.Edges[0].Source.Workload)
	joined := one.Edges[1]
	require.InDelta(t, 3, joined.Client.Requests, 0)
	require.Equal(t, []Duration{{0, 1, 2}, {1, 0, 1}}, joined.Client.Durations)
	require.InDelta(t, 0.75, joined.Client.P50, 0.001)
	require.InDelta(t, 3, joined.Server.Mutual, 0)
	require.InDelta(t, 8, (&Numbers{MutualBytes: 4}).with(joined.Server).MutualBytes, 0)
	require.InDelta(t, 2, other.Edges[1].Client.Requests, 0, "the other graph does not change")
}

// TestJoinedRates joins graphs of replicas of which some have no rates.
func TestJoinedRates(t *testing.T) {
	now := time.Now()
	var (
		began = Graph{Now: now}
		empty = Graph{Now: now, At: now, Rated: true}
		once  = Graph{Now: now, At: now, Proxies: Coverage{Measured: 1}}
		rated = Graph{Now: now, At: now, Rated: true, Proxies: Coverage{Measured: 1}}
	)
	for _, c := range []struct {
		of   string
		a, b Graph
		want bool
	}{
		{"began, rated", began, rated, true},
		{"began, once", began, once, false},
		{"empty, once", empty, once, false},
		{"empty, rated", empty, rated, true},
		{"once, rated", once, rated, true},
		{"rated, rated", rated, rated, true},
	} {
		for range 2 {
			g := c.a
			g.Join(&c.b)
			require.Equal(t, c.want, g.Rated, c.of)
			require.Equal(t, now, g.At, c.of)
			c.a, c.b = c.b, c.a
		}
	}

	slow := Graph{Now: now.Add(-time.Hour)}
	slow.Join(&rated)
	require.Equal(t, slow.Now, slow.At, "by its own clock")
}
