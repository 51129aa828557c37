package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// adminTimeout bounds a request without a shorter deadline. Envoy answers on its main thread, which a large update may
// occupy for seconds.
const adminTimeout = 10 * time.Second

// Admin calls one Envoy's admin interface. It is safe for concurrent use.
type Admin struct {
	base string
	http *http.Client
}

// NewAdmin returns a client of the admin interface at "host:port" or "unix:///path".
func NewAdmin(address string) *Admin {
	network, target, base := "tcp", address, "http://"+address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, target, base = "unix", path, "http://admin"
	}
	dialer := &net.Dialer{Timeout: adminTimeout}
	return &Admin{base: base, http: &http.Client{
		Timeout: adminTimeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, target)
			},
			MaxIdleConns:    1,
			IdleConnTimeout: 30 * time.Second,
		},
	}}
}

// Close closes idle connections.
func (a *Admin) Close() { a.http.CloseIdleConnections() }

// ServerInfo has the fields of /server_info that Moonsail uses.
type ServerInfo struct {
	Version     string `json:"version"`
	State       string `json:"state"` // LIVE, DRAINING, PRE_INITIALIZING or INITIALIZING
	HotRestart  string `json:"hot_restart_version"`
	Uptime      string `json:"uptime_current_epoch"`
	CommandLine struct {
		Concurrency int `json:"concurrency"`
	} `json:"command_line_options"`
}

// Ready returns nil if Envoy is LIVE.
func (a *Admin) Ready(ctx context.Context) error {
	_, err := a.get(ctx, "/ready", nil)
	return err
}

// ServerInfo also works while Envoy initializes.
func (a *Admin) ServerInfo(ctx context.Context) (*ServerInfo, error) {
	body, err := a.get(ctx, "/server_info", nil)
	if err != nil {
		return nil, err
	}
	info := &ServerInfo{}
	return info, decode(body, info)
}

// Stats returns the counters and gauges whose names match the regular expression filter (empty: all), without text
// readouts and histograms.
func (a *Admin) Stats(ctx context.Context, filter string) (map[string]uint64, error) {
	// The parameter "type" selects one kind only, and two requests would return values of different moments.
	q := url.Values{"format": {"json"}}
	if filter != "" {
		q.Set("filter", filter)
	}
	body, err := a.get(ctx, "/stats", q)
	if err != nil {
		return nil, err
	}
	return decodeStats(body)
}

func decodeStats(body []byte) (map[string]uint64, error) {
	var answer struct {
		Stats []struct {
			Name  string          `json:"name"`
			Value json.RawMessage `json:"value"`
		} `json:"stats"`
	}
	if err := decode(body, &answer); err != nil {
		return nil, err
	}
	stats := make(map[string]uint64, len(answer.Stats))
	for _, s := range answer.Stats {
		var n uint64
		if len(s.Value) > 0 && json.Unmarshal(s.Value, &n) == nil {
			stats[s.Name] = n
		}
	}
	return stats, nil
}

// Prometheus copies /stats/prometheus to w, with a query (usedonly, filter...).
func (a *Admin) Prometheus(ctx context.Context, query string, w io.Writer) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	body, err := a.get(ctx, "/stats/prometheus", values)
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// Clusters returns the JSON of /clusters.
func (a *Admin) Clusters(ctx context.Context) (json.RawMessage, error) {
	return a.get(ctx, "/clusters", url.Values{"format": {"json"}})
}

// Listeners returns the JSON of /listeners: names and bound addresses.
func (a *Admin) Listeners(ctx context.Context) (json.RawMessage, error) {
	return a.get(ctx, "/listeners", url.Values{"format": {"json"}})
}

// ConfigDump returns the JSON of /config_dump. query may contain resource, mask, name_regex and include_eds.
func (a *Admin) ConfigDump(ctx context.Context, query url.Values) (json.RawMessage, error) {
	return a.get(ctx, "/config_dump", query)
}

// Certs returns the JSON of /certs: the certificates that are in use.
func (a *Admin) Certs(ctx context.Context) (json.RawMessage, error) { return a.get(ctx, "/certs", nil) }

// FailHealthCheck makes Envoy fail its health checks, and close its HTTP clients' connections with the next response:
// "connection: close" or GOAWAY.
func (a *Admin) FailHealthCheck(ctx context.Context) error {
	return a.post(ctx, "/healthcheck/fail")
}

// DrainListeners starts the graceful drain of inbound or all listeners. They accept connections during Envoy's
// --drain-time-s, then close. Envoy runs until it is stopped.
func (a *Admin) DrainListeners(ctx context.Context, inboundOnly bool) error {
	path := "/drain_listeners?graceful&skip_exit"
	if inboundOnly {
		path += "&inboundonly"
	}
	return a.post(ctx, path)
}

// Logging sets the levels of loggers in query (level=debug or paths=rbac:debug,jwt:trace), and returns those of all
// loggers.
func (a *Admin) Logging(ctx context.Context, query url.Values) (map[string]string, error) {
	body, err := a.do(ctx, http.MethodPost, "/logging?"+query.Encode())
	if err != nil {
		return nil, err
	}
	levels := map[string]string{}
	for line := range strings.Lines(string(body)) { // "  rbac: debug", under a heading that ends in ":"
		if name, level, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			levels[name] = level
		}
	}
	return levels, nil
}

// Quit ends Envoy at once.
func (a *Admin) Quit(ctx context.Context) error { return a.post(ctx, "/quitquitquit") }

func (a *Admin) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return a.do(ctx, http.MethodGet, path)
}

func (a *Admin) post(ctx context.Context, path string) error {
	_, err := a.do(ctx, http.MethodPost, path)
	return err
}

func (a *Admin) do(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := a.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("admin interface of Envoy: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("admin interface of Envoy, %s %s: %w", method, path, err)
	}
	if res.StatusCode != http.StatusOK {
		err := fmt.Errorf("admin interface of Envoy, %s %s: %s: %s", method, path, res.Status, firstLine(body))
		if res.StatusCode == http.StatusNotFound {
			err = notFound{err}
		}
		return nil, err
	}
	return body, nil
}

// ErrNotFound is the error of a page or a resource that Envoy does not have.
var ErrNotFound = errors.New("not found")

type notFound struct{ error }

func (notFound) Is(target error) bool { return target == ErrNotFound }

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("admin interface of Envoy: unexpected JSON: %w: %s", err, firstLine(body))
	}
	return nil
}

func firstLine(body []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return line[:min(len(line), 200)]
}
