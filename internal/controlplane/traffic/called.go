package traffic

import (
	"bytes"
	"strings"
)

// CalledMetrics matches the names in Envoy of the metrics that Called reads.
const CalledMetrics = `istio\.(requests_total|tcp_connections_opened_total)`

// maxFailures bounds the kinds of failures of one call.
const maxFailures = 16

// Count is what a proxy counts of its calls to a host. For TCP, requests are connections.
type Count struct {
	Requests float64
	Errors   float64
	// Failures are the errors by status and response flags, such as "503 UH". Errors of further kinds are not in it.
	Failures map[string]float64
	Reached  float64 // requests that a server answered, as far as the proxy knows
	Mutual   float64 // of these, with a certificate of the mesh
}

// Called returns the hosts that a proxy's metrics say it has called. At most that many are returned. Errors are those of the
// graph.
func Called(text []byte, most int) map[string]*Count {
	out := map[string]*Count{}
	for line := range bytes.Lines(text) {
		if len(line) > maxLine || !bytes.HasPrefix(line, []byte("istio_")) {
			continue
		}
		metric, labels, value, ok := parseLine(strings.TrimSuffix(string(line), "\n"))
		host := known(labels["destination_service"])
		if !ok || metric != metricRequests && metric != metricOpened || labels["reporter"] != "source" || host == "" {
			continue
		}
		c := out[host]
		if c == nil {
			if len(out) >= most {
				continue
			}
			c = &Count{}
			out[strings.Clone(host)] = c
		}
		c.addSeries(labels, value)
	}
	return out
}

func (c *Count) addSeries(l labelSet, value float64) {
	c.Requests += value
	if l.failed() {
		c.Errors += value
		c.addFailure(l.failure(), value)
	}
	if l["response_flags"] == "-" { // the flags of others may mean that no server got them
		c.Reached += value
		if known(l["destination_principal"]) != "" {
			c.Mutual += value
		}
	}
}

func (c *Count) addFailure(kind string, value float64) {
	if _, has := c.Failures[kind]; !has && len(c.Failures) >= maxFailures {
		return
	}
	if c.Failures == nil {
		c.Failures = map[string]float64{}
	}
	c.Failures[kind] += value
}

// failure describes how a request failed, by its status and response flags.
func (l labelSet) failure() string {
	var parts []string
	if code := l["response_code"]; code != "" && code != "200" {
		parts = append(parts, code)
	}
	if status := known(l["grpc_response_status"]); status != "" && l["request_protocol"] == "grpc" {
		parts = append(parts, "gRPC "+status)
	}
	if flags := l["response_flags"]; flags != "-" && flags != "" {
		parts = append(parts, flags)
	}
	return strings.Clone(strings.Join(parts, " "))
}

// Add adds other.
func (c *Count) Add(other *Count) {
	c.Requests, c.Errors = c.Requests+other.Requests, c.Errors+other.Errors
	c.Reached, c.Mutual = c.Reached+other.Reached, c.Mutual+other.Mutual
	for kind, n := range other.Failures {
		c.addFailure(kind, n)
	}
}

// Since returns what was counted since an earlier count; nil: it began at 0. Counters that decreased began at 0 again.
func (c *Count) Since(before *Count) *Count {
	if before == nil || before.Requests > c.Requests {
		before = &Count{}
	}
	out := &Count{
		Requests: c.Requests - before.Requests, Errors: max(0, c.Errors-before.Errors),
		Reached: max(0, c.Reached-before.Reached), Mutual: max(0, c.Mutual-before.Mutual),
	}
	for kind, n := range c.Failures {
		if n -= before.Failures[kind]; n > 0 {
			out.addFailure(kind, n)
		}
	}
	return out
}
