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
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// App is where the application serves its Prometheus metrics.
type App struct {
	Port uint16 // 0: it has none
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

// FindApp reads the variable that Istio's injector sets. Without it, FindApp reads the Pod's annotations
// prometheus.io/scrape, port and path.
func FindApp(environ []string, annotations map[string]string) (App, error) {
	for _, e := range environ {
		if text, ok := strings.CutPrefix(e, AppVariable+"="); ok && text != "" {
			var annotated struct{ Scrape, Path, Port string }
			if err := json.Unmarshal([]byte(text), &annotated); err != nil {
				return App{}, fmt.Errorf("environment variable %s: not a JSON object of strings: %w", AppVariable, err)
			}
			if annotated.Scrape != "false" { // the injector changes no Pod with scrape "false"
				annotated.Scrape = "true"
			}
			return newApp(annotated.Scrape, annotated.Port, annotated.Path, AppVariable)
		}
	}
	return newApp(annotations["prometheus.io/scrape"], annotations["prometheus.io/port"], annotations["prometheus.io/path"],
		"annotation prometheus.io/port")
}

// newApp returns the zero App if port belongs to the sidecar: Prometheus then scrapes the sidecar, not the application.
func newApp(scrape, port, path, where string) (App, error) {
	if scrape != "true" {
		return App{}, nil
	}
	n, err := strconv.ParseUint(cmp.Or(port, "80"), 10, 16)
	if err != nil || n == 0 {
		return App{}, fmt.Errorf("%s: invalid port %q: use a number from 1 to 65535", where, port)
	}
	if n >= firstSidecarPort && n <= lastSidecarPort {
		return App{}, nil
	}
	return App{Port: uint16(n), Path: path}, nil
}

// warnAfter is how many scrapes of the application fail in a row before a warning: it may not listen yet.
const warnAfter = 2

// readApp gets the application's metrics. It returns nil if the application has none, or if its port is the sidecar's:
// the sidecar would scrape itself without end.
func (m *Merger) readApp(r *http.Request) []byte {
	if m.App.Port == 0 || slices.Contains(m.OwnPorts, m.App.Port) {
		return nil
	}
	body, err := m.scrapeApp(r.Context(), r)
	if err != nil {
		m.failures.WithLabelValues("application").Inc()
		level := slog.LevelDebug
		if r.Context().Err() == nil && m.appFails.Add(1) == warnAfter {
			level = slog.LevelWarn
		}
		m.Log.Log(r.Context(), level, "cannot get the application's metrics: check its annotations prometheus.io/port and prometheus.io/path", "error", err)
		return nil
	}
	m.appFails.Store(0)
	return body
}

// scrapeApp gets the application's metrics in Prometheus' text format.
func (m *Merger) scrapeApp(ctx context.Context, r *http.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin(r))
	defer cancel()
	url := "http://localhost:" + strconv.Itoa(int(m.App.Port)) + "/" + strings.TrimPrefix(cmp.Or(m.App.Path, "/metrics"), "/")
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
