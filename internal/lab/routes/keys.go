package routes

import (
	"context"
	"fmt"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/lab/openloop"
	"github.com/moonsail/moonsail/internal/lab/threads"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// keyFormat is a way to compute a scope's key. Its scopes are part of the listener and
// answer directly, so that next to nothing else is measured.
type keyFormat struct {
	name, about string
	format      string   // "": no scopes
	keys        []string // that may come out
}

const noScopes = "none"

func keyFormats() []keyFormat {
	out := []keyFormat{
		{noScopes, "no scopes, no header", "", nil},
		{"constant", "a constant header", "0", []string{"0"}},
		{"prefix", "the first character, without CEL", "%REQ(:AUTHORITY):1%", []string{"s"}},
		{"compare", "CEL: is the host below a constant", "%CEL(request.host < 'm' ? 0 : 1)%", numbers(2)},
		{"form", "CEL: the host if it has the form of the mesh's", "%CEL(" + meshHost + ")%", []string{"*", host(7), host(7) + ".svc.cluster.local"}},
	}
	for _, bits := range []int{1, 4, 5, 6, 7} {
		out = append(out, keyFormat{fmt.Sprintf("hash-%d", 1<<bits), fmt.Sprintf("CEL: %d regular expressions added up", bits),
			"%CEL(" + bucket.Expression(bits) + ")%", numbers(bucket.Count(bits))})
	}
	return append(out, keyFormat{"formatters-4", "as hash-16, but a CEL formatter for each regular expression", formatters(4), booleans(4)})
}

func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func formatters(bits int) string {
	var b strings.Builder
	for i := range bits {
		fmt.Fprintf(&b, "%%CEL(request.host.matches('%s'))%%", bucket.NamePattern(i))
	}
	return b.String()
}

func booleans(bits int) []string {
	out := []string{""}
	for range bits {
		var longer []string
		for _, s := range out {
			longer = append(longer, s+"true", s+"false")
		}
		out = longer
	}
	return out
}

// manage, all and changed make it a layout.
func (k keyFormat) manage(_ *mesh, out *hcmv3.HttpConnectionManager) error {
	rc := direct()
	if k.format == "" {
		out.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
		return nil
	}
	list := &hcmv3.ScopedRouteConfigurationsList{}
	for _, key := range k.keys {
		list.ScopedRouteConfigurations = append(list.ScopedRouteConfigurations,
			&routev3.ScopedRouteConfiguration{Name: key, Key: scopeKey(key), RouteConfiguration: rc})
	}
	return scoped(out, k.format, "", &hcmv3.ScopedRoutes{
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRouteConfigurationsList{ScopedRouteConfigurationsList: list},
	})
}

func (keyFormat) all(*mesh) ([]item, error)          { return nil, nil }
func (keyFormat) changed(*mesh, int) ([]item, error) { return nil, nil }

func direct() *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: "direct", VirtualHosts: []*routev3.VirtualHost{{
		Name: "direct", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
		}},
	}}}
}

// keyRounds are rounds over all formats; a median of them is a result.
const keyRounds = 9

// measureKeys loads one listener a format, in turn, with as many requests as go through.
func measureKeys(ctx context.Context, o *Options, up *upstream) ([]Key, error) {
	s, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	formats := keyFormats()
	for _, f := range formats {
		ln, err := listener(nil, f, f.name)
		if err != nil {
			return nil, err
		}
		if err := s.put([]item{{resource.ListenerURL, f.name, ln}}); err != nil {
			return nil, err
		}
	}
	p, err := startProxy(o.Envoy, 1, s.port(), up.port())
	if err != nil {
		return nil, err
	}
	defer p.stop()
	return loadKeys(ctx, o, p, formats)
}

func loadKeys(ctx context.Context, o *Options, p *proxy, formats []keyFormat) ([]Key, error) {
	cpu, p50 := make([][]float64, len(formats)), make([][]time.Duration, len(formats))
	for round := range keyRounds + 1 { // the first one warms up
		for i, f := range formats {
			o.progress("keys, %s: round %d of %d", f.name, round, keyRounds)
			where, _, err := p.ready(ctx, f.name, host(7), "")
			if err != nil {
				return nil, err
			}
			c, took, err := loadKey(ctx, o, p, where)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			if round > 0 {
				cpu[i], p50[i] = append(cpu[i], c), append(p50[i], took)
			}
		}
	}
	out := make([]Key, len(formats))
	for i, f := range formats {
		out[i] = Key{Name: f.name, About: f.about, CPU: percentile(cpu[i], 0.5), P50: micros(percentile(p50[i], 0.5))}
		out[i].Added = out[i].CPU - out[0].CPU
	}
	return out, nil
}

// loadKey gives the worker's microseconds a request, and the median latency.
func loadKey(ctx context.Context, o *Options, p *proxy, where string) (float64, time.Duration, error) {
	l := &openloop.Load{Address: where, Conns: 4, Hosts: []string{host(7), host(7) + ".svc.cluster.local"}}
	before, err := threads.Read(p.process.Pid())
	if err != nil {
		return 0, 0, err
	}
	got, err := l.Run(ctx, o.Keys)
	if err != nil {
		return 0, 0, err
	}
	after, err := threads.Read(p.process.Pid())
	if got.Failed > 0 {
		return 0, 0, fmt.Errorf("%d of %d requests failed", got.Failed, len(got.Latencies))
	}
	return per(micros(after.Sub(before).AllWorkers()), float64(len(got.Latencies))), percentile(got.Latencies, 0.5), err
}
