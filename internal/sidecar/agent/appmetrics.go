package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// AppMetrics is where the application serves its own Prometheus metrics: port 0: nowhere.
type AppMetrics struct {
	Port uint16
	Path string // "/metrics" where empty
}

const (
	// maxAppMetrics bounds what an application may answer; more counts as a failure.
	maxAppMetrics = 32 << 20
	// scrapeTimeout where the scraper does not say its own.
	scrapeTimeout = 10 * time.Second
	// appMetricsVariable is where Istio's injector leaves the Pod's own annotations, which it
	// replaced by the agent's port.
	appMetricsVariable = "ISTIO_PROMETHEUS_ANNOTATIONS"
)

// FindAppMetrics reads what Istio's injector left in the environment; without, the Pod's
// annotations prometheus.io/scrape, port and path.
func FindAppMetrics(environ []string, annotations map[string]string) (AppMetrics, error) {
	for _, e := range environ {
		if text, ok := strings.CutPrefix(e, appMetricsVariable+"="); ok && text != "" {
			var said struct{ Scrape, Path, Port string }
			if err := json.Unmarshal([]byte(text), &said); err != nil {
				return AppMetrics{}, fmt.Errorf("environment variable %s holds no JSON object of strings: %w", appMetricsVariable, err)
			}
			if said.Scrape != "false" { // the injector leaves what is not to be scraped alone
				said.Scrape = "true"
			}
			return appMetrics(said.Scrape, said.Port, said.Path, appMetricsVariable)
		}
	}
	return appMetrics(annotations["prometheus.io/scrape"], annotations["prometheus.io/port"], annotations["prometheus.io/path"],
		"annotation prometheus.io/port")
}

// appMetrics: ports of the sidecar's own mean that its metrics are scraped there already.
func appMetrics(scrape, port, path, where string) (AppMetrics, error) {
	if scrape != "true" {
		return AppMetrics{}, nil
	}
	n, err := strconv.ParseUint(orDefault(port, "80"), 10, 16)
	if err != nil || n == 0 {
		return AppMetrics{}, fmt.Errorf("%s: invalid port %q: use a number from 1 to 65535", where, port)
	}
	if n >= DefaultAdminPort && n <= DefaultPrometheusPort {
		return AppMetrics{}, nil
	}
	return AppMetrics{Port: uint16(n), Path: path}, nil
}

// scrapeApp gets the application's metrics in Prometheus' text format, or an error.
func (a *agent) scrapeApp(ctx context.Context, r *http.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin(r))
	defer cancel()
	url := "http://localhost:" + strconv.Itoa(int(a.AppMetrics.Port)) + "/" + strings.TrimPrefix(orDefault(a.AppMetrics.Path, "/metrics"), "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	// Envoy's metrics are in this format, and two cannot be mixed.
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	transport := &http.Transport{DisableKeepAlives: true, DialContext: a.dialLocal}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAppMetrics+1))
	if err == nil && len(body) > maxAppMetrics {
		err = fmt.Errorf("%s answers more than %d bytes", url, maxAppMetrics)
	}
	return withoutEOF(body), err
}

// dialLocal connects to a port of an application on this host, which may listen for one family alone.
func (a *agent) dialLocal(ctx context.Context, network, address string) (conn net.Conn, err error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	hosts := []string{"127.0.0.1", "::1"}
	if isLoopback(a.bind) {
		hosts = []string{a.bind} // one of many workloads of this machine
	}
	var failed []error
	for _, host := range hosts {
		if conn, err = (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(host, port)); err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// withoutEOF takes away how OpenMetrics ends: more follows, or came before.
func withoutEOF(body []byte) []byte {
	body, _ = bytes.CutSuffix(bytes.TrimRight(body, "\n"), []byte("# EOF"))
	if body = bytes.TrimRight(body, "\n"); len(body) > 0 {
		body = append(body, '\n')
	}
	return body
}

// scrapeWithin is the time that the scraper gives, less some for the rest.
func scrapeWithin(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || !(seconds > 0) || seconds > 600 {
		return scrapeTimeout
	}
	return time.Duration(seconds * 0.9 * float64(time.Second))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
