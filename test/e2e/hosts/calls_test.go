//go:build linux

package hosts

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/demo"
)

// An edge is a caller and the service that it calls.
type edge struct{ from, to string }

// counts are the metrics of both ends of calls: how many there were with a code.
type counts struct {
	source, destination map[edge]map[string]int
}

// requests adds up istio_requests_total of all members, and checks its labels.
func (m *shopMesh) requests() (counts, error) {
	out := counts{source: map[edge]map[string]int{}, destination: map[edge]map[string]int{}}
	for _, w := range m.members {
		status, text, err := get(w.Host, "http://127.0.0.1:15020/stats/prometheus", "")
		if err != nil || status != http.StatusOK {
			return out, fmt.Errorf("%s: status %d, %w", w.name, status, err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			return out, fmt.Errorf("%s: %w", w.name, err)
		}
		for _, line := range families["istio_requests_total"].GetMetric() {
			labels := map[string]string{}
			for _, l := range line.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if err := out.add(w, labels, int(line.GetCounter().GetValue())); err != nil {
				return out, fmt.Errorf("%s: %w: %v", w.name, err, labels)
			}
		}
	}
	return out, nil
}

// noSidecar is a caller that presents a certificate, but no metadata.
const noSidecar = "unknown"

func (c counts) add(w *member, l map[string]string, n int) error {
	of, own, security := c.source, "source", "unknown"
	if l["reporter"] == "destination" {
		of, own, security = c.destination, "destination", "mutual_tls"
	}
	e := edge{l["source_canonical_service"], l["destination_canonical_service"]}
	switch {
	case l[own+"_workload"] != w.App+"-"+w.Version:
		return errors.New("it names another workload as its own")
	case l["connection_security_policy"] != security:
		return errors.New("it is not mutual TLS")
	case l["source_principal"] != "spiffe://cluster.local/ns/shop/sa/"+e.from && e.from != noSidecar:
		return errors.New("another's principal")
	case l["destination_principal"] != "spiffe://cluster.local/ns/shop/sa/"+e.to && l["response_code"] == "200":
		return errors.New("principal of another destination")
	case l["destination_service"] != e.to+".shop.svc.cluster.local":
		return errors.New("another service")
	}
	if of[e] == nil {
		of[e] = map[string]int{}
	}
	of[e][l["response_code"]] += n
	return nil
}

// since returns the counts since before.
func (c counts) since(before counts) counts {
	less := func(now, then map[edge]map[string]int) map[edge]map[string]int {
		out := map[edge]map[string]int{}
		for e, codes := range now {
			for code, n := range codes {
				if n -= then[e][code]; n != 0 {
					if out[e] == nil {
						out[e] = map[string]int{}
					}
					out[e][code] = n
				}
			}
		}
		return out
	}
	return counts{less(c.source, before.source), less(c.destination, before.destination)}
}

// steady waits until the counts stop changing.
func (m *shopMesh) steady() counts {
	m.t.Helper()
	var last counts
	eventually(m.t, "metrics that stand still", func() error {
		now, err := m.requests()
		if err == nil && fmt.Sprint(now) != fmt.Sprint(last) {
			err = fmt.Errorf("they say %v", now)
		}
		last = now
		return err
	})
	return last
}

// logged returns how many lines a service's sidecars wrote to access logs about inbound requests with an id.
func (m *shopMesh) logged(service, id string) int {
	n := 0
	for _, w := range m.of(service) {
		for line := range strings.Lines(w.agent.log.String()) {
			if strings.HasPrefix(line, "[") && strings.Contains(line, `"GET / HTTP`) && strings.Contains(line, "inbound|8080||") && strings.Contains(line, id) {
				n++
			}
		}
	}
	return n
}

// requireCounted makes requests, and checks that both ends of each resulting call have counted and logged it.
func (m *shopMesh) requireCounted(t *testing.T) {
	t.Helper()
	const asked = 30
	before := m.steady()
	m.counted++
	id := fmt.Sprintf("counted-%d-", m.counted)
	for range asked {
		require.NoError(t, m.frontAs(id))
	}
	want := map[edge]map[string]int{}
	for _, e := range []edge{{"shopper", "frontend"}, {"frontend", "catalog"}, {"frontend", "cart"}, {"frontend", "reviews"}, {"cart", "catalog"}} {
		want[e] = map[string]int{"200": asked}
	}
	var now counts
	var rated int // two of the three versions of reviews call ratings
	eventually(t, "both ends to have counted the calls", func() error {
		var err error
		if now, err = m.requests(); err != nil {
			return err
		}
		got := now.since(before)
		rating := edge{"reviews", "ratings"}
		rated = got.source[rating]["200"]
		want[rating] = map[string]int{"200": rated}
		if !same(got.source, want) || !same(got.destination, want) {
			return fmt.Errorf("they say %v instead of %v", got, want)
		}
		return nil
	})
	require.Positive(t, rated)
	require.Less(t, rated, asked)
	for _, w := range m.members {
		status, text, err := get(m.shopper().Host, "http://"+at(w.Host, 15090)+"/stats/prometheus", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, "\nistio_requests_total{reporter=", "the same names")
	}
	m.requireLogged(now.since(before), id)
}

// requireLogged checks that access logs have a line for each counted request with an id.
func (m *shopMesh) requireLogged(now counts, id string) {
	m.t.Helper()
	for _, service := range demo.Services {
		n := 0
		for e, codes := range now.destination {
			if e.to == service {
				n += codes["200"]
			}
		}
		eventually(m.t, "lines of "+service+"'s access logs", func() error { // Envoy writes them each second
			if got := m.logged(service, id); got != n {
				return fmt.Errorf("%d lines instead of %d", got, n)
			}
			return nil
		})
	}
}

func same(a, b map[edge]map[string]int) bool {
	return maps.EqualFunc(a, b, func(x, y map[string]int) bool { return maps.Equal(x, y) })
}
