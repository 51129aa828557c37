package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Options of a collection.
type Options struct {
	// ControlPlane is the address as users know it, with its metrics; nil: no control plane is asked.
	Address string
	Metrics func(context.Context) ([]byte, error)
	// Connected returns the state of the control plane's proxies, if it is Moonsail's. nil: it is not asked.
	Connected func(context.Context) (*Connected, error)
	// Sidecars are the addresses of Envoys' admin interfaces.
	Sidecars []string
	// Over is the time over which counters are watched; 0: they count since the start of their process.
	Over time.Duration
	// Watching is called before the wait, if there is one.
	Watching func()
}

// Collect reads each process once, or twice if Over is set. It changes nothing. If a process does not
// answer, the error names it.
func Collect(ctx context.Context, o Options) (*Evidence, error) {
	e := &Evidence{Sidecars: make([]ProxyEvidence, len(o.Sidecars))}
	var first *Evidence
	if o.Over > 0 {
		first = &Evidence{Sidecars: make([]ProxyEvidence, len(o.Sidecars))}
		if err := first.count(ctx, o); err != nil {
			return nil, err
		}
		if o.Watching != nil {
			o.Watching()
		}
		if err := clock.Sleep(ctx, o.Over); err != nil {
			return nil, err
		}
	}
	e.At = time.Now()
	if err := e.count(ctx, o); err != nil {
		return nil, err
	}
	if first != nil {
		e.since(first, o.Over)
	}
	if err := e.ControlPlane.look(ctx, o); err != nil {
		return nil, err
	}
	for i := range e.Sidecars {
		if err := e.Sidecars[i].look(ctx); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// since subtracts an earlier count.
func (e *Evidence) since(first *Evidence, over time.Duration) {
	if e.ControlPlane != nil {
		e.ControlPlane.Before, e.ControlPlane.Over = first.ControlPlane.Now, over
	}
	for i := range e.Sidecars {
		e.Sidecars[i].Before, e.Sidecars[i].Over = first.Sidecars[i].Now, over
	}
}

// count reads counters and gauges.
func (e *Evidence) count(ctx context.Context, o Options) error {
	if o.Metrics != nil {
		text, err := o.Metrics(ctx)
		if err != nil {
			return err
		}
		m, err := ParseMetrics(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("%s: %w", o.Address, err)
		}
		if !IsControlPlane(m) {
			return fmt.Errorf("%s: not a control plane: its metrics have neither pilot_info nor moonsail_build_info", o.Address)
		}
		e.ControlPlane = &PlaneEvidence{Address: o.Address, Now: m}
	}
	for i, address := range o.Sidecars {
		s := &e.Sidecars[i]
		s.Address = address
		admin := envoy.NewAdmin(address)
		stats, err := admin.Stats(ctx, "")
		admin.Close()
		if err != nil {
			return fmt.Errorf("sidecar %s: %w", address, err)
		}
		s.Now = stats
	}
	return nil
}

// look reads the state of the proxies that are connected to the control plane. Its pages may need a token that metrics do not need.
func (p *PlaneEvidence) look(ctx context.Context, o Options) (err error) {
	if p == nil || o.Connected == nil || !IsMoonsail(p.Now) {
		return nil
	}
	p.Connected, err = o.Connected(ctx)
	if err != nil && ctx.Err() == nil {
		p.Connected, p.NoConnected = nil, err.Error()
		return nil
	}
	return err
}

// look reads the other pages of an Envoy's admin interface.
func (s *ProxyEvidence) look(ctx context.Context) error {
	admin := envoy.NewAdmin(s.Address)
	defer admin.Close()
	info, err := admin.ServerInfo(ctx)
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.Address, err)
	}
	s.Version, s.Concurrency = release(info.Version), info.CommandLine.Concurrency
	clusters, err := admin.Clusters(ctx)
	if err == nil {
		s.Hosts, err = readHosts(clusters)
	}
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.Address, err)
	}
	s.Filters = map[string]int{}
	for _, part := range []string{"static_listeners", "dynamic_listeners", "ecds_filters"} {
		dump, err := admin.ConfigDump(ctx, url.Values{"resource": {part}})
		switch {
		case errors.Is(err, envoy.ErrNotFound):
			continue // an Envoy without these filters has no such entries
		case ctx.Err() != nil:
			return fmt.Errorf("sidecar %s: %w", s.Address, err)
		case err != nil:
			s.NoFilters = err.Error()
			continue
		}
		var any any
		if err := json.Unmarshal(dump, &any); err != nil {
			return fmt.Errorf("sidecar %s: /config_dump: %w", s.Address, err)
		}
		countTypes(any, s.Filters)
	}
	return nil
}

// release returns the number in Envoy's build version: commit/number/state/kind/TLS library.
func release(build string) string {
	if parts := strings.Split(build, "/"); len(parts) > 1 {
		return parts[1]
	}
	return build
}

// readHosts reads /clusters.
func readHosts(text []byte) ([]Host, error) {
	var all struct {
		Clusters []struct {
			Name  string
			Hosts []struct {
				Address struct {
					Socket struct {
						Address string
						Port    int `json:"port_value"`
					} `json:"socket_address"`
					Pipe struct{ Path string }
				}
				Stats []struct {
					Name  string
					Value string
				}
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("/clusters: %w", err)
	}
	var out []Host
	for _, c := range all.Clusters {
		for _, h := range c.Hosts {
			host := Host{Cluster: c.Name, Address: h.Address.Pipe.Path}
			if s := h.Address.Socket; s.Address != "" {
				host.Address = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
			}
			for _, s := range h.Stats {
				n, _ := strconv.ParseUint(s.Value, 10, 64) // absent: 0
				switch s.Name {
				case "cx_total":
					host.Connects = n
				case "cx_connect_fail":
					host.ConnectFails = n
				case "cx_active":
					host.Active = n
				}
			}
			out = append(out, host)
		}
	}
	return out, nil
}

// countTypes counts typed configurations by their URL.
func countTypes(value any, counts map[string]int) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if s, ok := inner.(string); ok && name == "@type" {
				counts[s]++
			}
			countTypes(inner, counts)
		}
	case []any:
		for _, inner := range v {
			countTypes(inner, counts)
		}
	}
}
