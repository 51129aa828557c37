package routes

import (
	"context"
	"fmt"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/openloop"
	"github.com/moonsail/moonsail/internal/lab/threads"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// keyFormat is a way to compute the key of a scope. Its scopes are part of the listener and respond directly, so that
// little else is measured.
type keyFormat struct {
	name, about string
	format      string   // "": no scopes
	keys        []string // possible keys
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
	for _, bits := range []int{1, 4, 5, 6, 7, 8} {
		out = append(out, keyFormat{fmt.Sprintf("hash-%d", 1<<bits), fmt.Sprintf("CEL: %d regular expressions added up", bits),
			"%CEL(" + routeshard.Expression(bits) + ")%", numbers(routeshard.Count(bits))})
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
		fmt.Fprintf(&b, "%%CEL(request.host.matches('%s'))%%", routeshard.NamePattern(i))
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

// manage, all and changed implement layout.
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

// keyBench is one Envoy with a listener for each format.
type keyBench struct{ served }

func startKeys(ctx context.Context, o *Options, up *upstream) (*keyBench, error) {
	k := &keyBench{}
	if err := k.start(ctx, o, up); err != nil {
		k.stop()
		return nil, fmt.Errorf("keys: %w", err)
	}
	return k, nil
}

func (k *keyBench) start(ctx context.Context, o *Options, up *upstream) (err error) {
	if k.server, err = startServer(ctx); err != nil {
		return err
	}
	for _, f := range keyFormats() {
		ln, err := listener(nil, f, f.name)
		if err != nil {
			return err
		}
		if err := k.server.put([]item{{resource.ListenerURL, f.name, ln}}); err != nil {
			return err
		}
	}
	k.proxy, err = startProxy(o.Envoy, 1, k.server.port(), up.port())
	return err
}

// key is the variant of one format.
type key struct {
	bench *keyBench
	long  time.Duration
	where string
}

// keyName returns the name of a format's row.
func keyName(format string) string { return "key: " + format }

// addKeys adds a variant for each format.
func (b *bench) addKeys(e *experiment.Experiment) {
	for _, f := range keyFormats() {
		e.Variants = append(e.Variants, experiment.Variant{Name: keyName(f.name), About: f.about, Series: "keys",
			Start: func(ctx context.Context) (experiment.Subject, error) { return startKey(ctx, b, f) }})
		if f.name != noScopes {
			e.Compare = append(e.Compare, experiment.Pair{Variant: keyName(f.name), Base: keyName(noScopes), Metrics: []string{metricKey}})
		}
	}
}

func startKey(ctx context.Context, b *bench, f keyFormat) (*key, error) {
	where, _, err := b.keys.proxy.ready(ctx, f.name, host(7), "")
	return &key{b.keys, b.o.Keys, where}, err
}

// Stop implements experiment.Subject. It does nothing because all keys share the Envoy.
func (*key) Stop() {}

// Measure implements experiment.Subject. It sends as many requests as the Envoy answers.
func (k *key) Measure(ctx context.Context, _ experiment.Round) (experiment.Sample, error) {
	l := &openloop.Load{Address: k.where, Conns: 4, Hosts: []string{host(7), host(7) + ".svc.cluster.local"}}
	before, err := threads.Read(k.bench.proxy.process.Pid())
	if err != nil {
		return nil, err
	}
	got, err := l.Run(ctx, k.long)
	if err != nil {
		return nil, err
	}
	after, err := threads.Read(k.bench.proxy.process.Pid())
	if got.Failed > 0 {
		return nil, fmt.Errorf("%d of %d requests failed", got.Failed, len(got.Latencies))
	}
	return experiment.Sample{
		metricKey:   per(micros(after.Sub(before).AllWorkers()), float64(len(got.Latencies))),
		metricKey50: micros(percentile(got.Latencies, 0.5)),
	}, err
}
