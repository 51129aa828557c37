package scrape

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// App is where the application serves Prometheus metrics.
type App struct {
	Port uint16
	Path string // empty: /metrics
}

const (
	maxAppBytes = 32 << 20 // of an application's answer; a longer one is a failure
	// scrapeTimeout applies if the scraper sends no timeout.
	scrapeTimeout = 10 * time.Second
	// AppVariable holds the Pod's own annotations for Prometheus. Istio's injector sets it and makes the annotations
	// refer to the agent.
	AppVariable = "ISTIO_PROMETHEUS_ANNOTATIONS"
)

// Istio's ports of sidecars.
const (
	firstSidecarPort = 15000
	lastSidecarPort  = 15090
)

// FindApps reads the variable that Istio's injector sets. Without it, FindApps reads the Pod's annotations
// prometheus.io/scrape, port and path.
func FindApps(environ []string, annotations map[string]string) ([]App, error) {
	for _, e := range environ {
		if text, ok := strings.CutPrefix(e, AppVariable+"="); ok && text != "" {
			var annotated struct {
				Scrape string
				target
				Targets []target
			}
			if err := json.Unmarshal([]byte(text), &annotated); err != nil {
				return nil, fmt.Errorf("environment variable %s: not a JSON object of strings and targets: %w", AppVariable, err)
			}
			if annotated.Scrape == "false" { // the injector changes no Pod with scrape "false"
				return nil, nil
			}
			if len(annotated.Targets) == 0 {
				annotated.Targets = []target{annotated.target}
			}
			return newApps(annotated.Targets, AppVariable)
		}
	}
	if annotations["prometheus.io/scrape"] != "true" {
		return nil, nil
	}
	return newApps([]target{{annotations["prometheus.io/port"], annotations["prometheus.io/path"]}}, "annotation prometheus.io/port")
}

// target is an address of metrics in annotations.
type target struct{ Port, Path string }

// newApps leaves out ports of the sidecar: Prometheus then scrapes the sidecar, not the application.
func newApps(targets []target, where string) ([]App, error) {
	var out []App
	for _, t := range targets {
		n, err := strconv.ParseUint(cmp.Or(t.Port, "80"), 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%s: invalid port %q: use a number from 1 to 65535", where, t.Port)
		}
		if n < firstSidecarPort || n > lastSidecarPort {
			out = append(out, App{Port: uint16(n), Path: t.Path})
		}
	}
	return out, nil
}

// warnAfter is how many scrapes of the application fail in a row before a warning: it may not listen yet.
const warnAfter = 2

// readApps gets the application's metrics from all of its addresses at the same time. It returns them in the order of Apps,
// and leaves out the sidecar's own ports: the sidecar would scrape itself without end.
func (m *Merger) readApps(r *http.Request) [][]byte {
	out := make([][]byte, len(m.Apps))
	var reading sync.WaitGroup
	for i, app := range m.Apps {
		if !slices.Contains(m.OwnPorts, app.Port) {
			reading.Go(func() { out[i] = m.readApp(r, app, &m.appFails[i]) })
		}
	}
	reading.Wait()
	return out
}

// readApp gets the metrics of one address; nil: it cannot. fails counts its failures since the last success.
func (m *Merger) readApp(r *http.Request, app App, fails *atomic.Int64) []byte {
	body, err := m.scrapeApp(r, app)
	if err != nil {
		m.failures.WithLabelValues("application").Inc()
		level := slog.LevelDebug
		if r.Context().Err() == nil && fails.Add(1) == warnAfter {
			level = slog.LevelWarn
		}
		m.Log.Log(r.Context(), level, "cannot get the application's metrics: check its annotations prometheus.io/port and prometheus.io/path", "error", err)
		return nil
	}
	fails.Store(0)
	return body
}

// scrapeApp gets the application's metrics in Prometheus' text format.
func (m *Merger) scrapeApp(r *http.Request, app App) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeWithin(r))
	defer cancel()
	url := "http://localhost:" + strconv.Itoa(int(app.Port)) + "/" + strings.TrimPrefix(cmp.Or(app.Path, "/metrics"), "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	// Envoy's metrics have this format, and an answer has one format.
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: m.dialLocal}, CheckRedirect: checkRedirect,
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAppBytes+1))
	if err == nil && len(body) > maxAppBytes {
		err = fmt.Errorf("%s: the answer has more than %d bytes", url, maxAppBytes)
	}
	return withoutEOF(body), err
}

// maxRedirects is that of net/http, which Prometheus uses.
const maxRedirects = 10

// checkRedirect lets the application redirect to another path, as Prometheus does: frameworks redirect /metrics to /metrics/.
// dialLocal would connect to this host for any other host.
func checkRedirect(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	switch {
	case next.URL.Scheme != first.Scheme || next.URL.Host != first.Host:
		return fmt.Errorf("the application redirects to %s://%s, which is not asked for metrics", next.URL.Scheme, next.URL.Host)
	case len(before) >= maxRedirects:
		return fmt.Errorf("the application redirects more than %d times", maxRedirects)
	}
	return nil
}

// dialLocal connects to a port of the application on this host. The application may listen on one IP family only.
func (m *Merger) dialLocal(ctx context.Context, network, address string) (conn net.Conn, err error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	hosts := []string{"127.0.0.1", "::1"}
	if model.IsLoopback(m.Bind) {
		hosts = []string{m.Bind} // the machine has several workloads
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

// withoutEOF removes the end mark of OpenMetrics, because other metrics precede and follow.
func withoutEOF(body []byte) []byte {
	body, _ = bytes.CutSuffix(bytes.TrimRight(body, "\n"), []byte("# EOF"))
	if body = bytes.TrimRight(body, "\n"); len(body) > 0 {
		body = append(body, '\n')
	}
	return body
}

// scrapeWithin returns nine tenths of the scraper's timeout, which leaves time for the rest of the answer.
func scrapeWithin(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || !(seconds > 0) || seconds > 600 {
		return scrapeTimeout
	}
	return time.Duration(seconds * 0.9 * float64(time.Second))
}
