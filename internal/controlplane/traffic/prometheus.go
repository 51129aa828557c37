package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds of a question to Prometheus.
const (
	maxAnswer    = 64 << 20
	askTimeout   = 10 * time.Second
	rateInterval = "2m" // several scrapes with Prometheus's default interval of 1m or less
)

// FromPrometheus returns a Meter that queries Prometheus at a URL. Its Run must be called.
func FromPrometheus(at *url.URL) *Meter {
	return newMeter(SourcePrometheus, &querier{at: at, http: &http.Client{
		Timeout:       askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
}

type querier struct {
	at   *url.URL
	http *http.Client
}

func (q *querier) forget() { q.http.CloseIdleConnections() }

// labelsOfCall are the labels that edges need.
const labelsOfCall = "reporter, source_workload, source_workload_namespace, source_canonical_service, source_canonical_revision, " +
	"destination_workload, destination_workload_namespace, destination_canonical_service, destination_canonical_revision, " +
	"destination_service_name, destination_service_namespace, request_protocol"

// Queries are the queries to Prometheus, by the metric that they read.
func Queries() map[string]string {
	more := map[string]string{
		metricRequests: ", response_code, grpc_response_status, connection_security_policy",
		metricDuration: ", le",
		metricOpened:   ", response_flags, connection_security_policy",
		metricSent:     ", connection_security_policy",
		metricReceived: ", connection_security_policy",
	}
	out := map[string]string{}
	for _, metric := range readMetrics {
		out[metric] = fmt.Sprintf("sum by (%s%s) (rate(%s[%s]))", labelsOfCall, more[metric], metric, rateInterval)
	}
	return out
}

func (q *querier) measure(ctx context.Context) *Graph {
	g := &Graph{Rated: true}
	sum, queries := map[Call]*pair{}, Queries()
	for _, metric := range readMetrics {
		if err := q.add(ctx, metric, queries[metric], sum); err != nil {
			g.Failures = append(g.Failures, fmt.Sprintf("Prometheus at %s: %s", q.at.Redacted(), err))
		}
	}
	g.Complete = len(g.Failures) == 0
	g.Edges, g.LeftOut = edges(sum)
	return g
}

// answer is the answer of Prometheus's HTTP API to an instant query.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric labelSet           `json:"metric"`
			Value  [2]json.RawMessage `json:"value"` // time and value
		} `json:"result"`
	} `json:"data"`
}

// add adds the series of a metric.
func (q *querier) add(ctx context.Context, metric, query string, sum map[Call]*pair) error {
	a, err := q.ask(ctx, query)
	if err != nil {
		return err
	}
	for i := range a.Data.Result {
		r := &a.Data.Result[i]
		var text string
		if json.Unmarshal(r.Value[1], &text) != nil {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		call, server, ok := r.Metric.call()
		if err != nil || !ok || !usable(value) {
			continue
		}
		p := sum[call]
		if p == nil {
			if len(sum) >= maxRecords {
				continue
			}
			p = &pair{}
			sum[call] = p
		}
		if *p.of(server) == nil {
			*p.of(server) = &sums{}
		}
		s := *p.of(server)
		s.addSeries(metric, r.Metric, value)
		s.total = 0 // a rate
	}
	return nil
}

func (q *querier) ask(ctx context.Context, query string) (*answer, error) {
	at := q.at.JoinPath("api/v1/query")
	form := url.Values{"query": {query}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := q.http.Do(req)
	if err != nil {
		var why *url.Error
		if errors.As(err, &why) {
			return nil, why.Err // the URL may have a password
		}
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxAnswer {
		return nil, fmt.Errorf("its answer has more than %d MiB", maxAnswer>>20)
	}
	a := &answer{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("it answers %s, which is not Prometheus's API", resp.Status)
	}
	if a.Status != "success" {
		return nil, fmt.Errorf("it answers %s: %s", resp.Status, a.Error)
	}
	return a, nil
}
