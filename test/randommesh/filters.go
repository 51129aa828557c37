package randommesh

import (
	"regexp"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
)

var proxyVersions = []string{"1.8.3", "1.31.1", ""}

func (w *World) envoyFilter() model.Object {
	f := &model.EnvoyFilter{Meta: w.meta(model.KindEnvoyFilter), Priority: int32(w.IntN(3) - 1)}
	w.selectOrTarget(&f.Selector, &f.Targets)
	for i := range 1 + w.IntN(3) {
		p := model.EnvoyPatch{
			Index: i, Operation: model.PatchMerge,
			Target: Pick(w, []model.PatchTarget{
				model.PatchHTTPFilter, model.PatchListener, model.PatchCluster, model.PatchHTTPRoute, model.PatchRouteConfig, model.PatchVirtualHost, model.PatchBootstrap,
			}),
			Context: Pick(w, []model.PatchContext{model.PatchAnywhere, model.PatchInbound, model.PatchOutbound, model.PatchGateway}),
		}
		if w.Chance(0.3) {
			p.ProxyVersion = regexp.MustCompile(`^1\.8.*`)
		}
		if w.Chance(0.2) {
			p.ProxyMetadata = map[string]string{"TEAM": Pick(w, names)}
		}
		if w.Chance(0.4) {
			w.adds(&p)
		} else if p.Target == model.PatchHTTPFilter {
			p.Operation = model.PatchFirst
		}
		p.Value = w.patchValue(&p)
		f.Patches = append(f.Patches, p)
	}
	return f
}

// adds makes a patch one that adds something.
func (w *World) adds(p *model.EnvoyPatch) {
	p.Operation, p.Name = model.PatchAdd, Pick(w, names)
	p.Target = Pick(w, []model.PatchTarget{model.PatchCluster, model.PatchListener, model.PatchVirtualHost})
	if p.Target != model.PatchVirtualHost {
		return
	}
	p.Domains = Pick(w, [][]string{{"added.example.com"}, {"api.example.com", "x.a"}, {"*"}})
	if w.Chance(0.5) {
		p.Routes = &model.RouteConfigMatch{Port: Pick(w, []uint32{80, 9000})}
	}
}

// patchValue is mostly a message of the patch's target that refers to nothing, but may name a cluster, and else cannot be unpacked.
func (w *World) patchValue(p *model.EnvoyPatch) []byte {
	if w.Chance(0.1) {
		return []byte{byte(w.IntN(3))}
	}
	text := Pick(w, []string{"1", "2", "outbound|80||" + string(w.host())})
	headers := []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-patched", Value: text}}}
	var m proto.Message
	switch p.Target {
	case model.PatchCluster:
		m = &clusterv3.Cluster{Name: p.Name, AltStatName: text}
	case model.PatchListener:
		listener := &listenerv3.Listener{Name: p.Name, StatPrefix: text}
		if p.Operation == model.PatchAdd {
			listener.Address = &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 7777},
			}}}
		}
		m = listener
	case model.PatchHTTPFilter:
		m = &hcmv3.HttpFilter{Name: text, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: &anypb.Any{
			TypeUrl: "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors",
		}}}
	case model.PatchHTTPRoute:
		m = &routev3.Route{ResponseHeadersToAdd: headers}
	case model.PatchVirtualHost:
		m = &routev3.VirtualHost{Name: p.Name, Domains: p.Domains, ResponseHeadersToAdd: headers}
	case model.PatchRouteConfig:
		m = &routev3.RouteConfiguration{ResponseHeadersToAdd: headers}
	default:
		m = &bootstrapv3.Bootstrap{StatsServerVersionOverride: wrapperspb.UInt64(uint64(len(text)))}
	}
	value, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the messages above can be encoded
	}
	return value
}

var (
	collectors = []string{"prometheus", "envoy", "json", "als", "otel", "zipkin", "missing"}
	metrics    = []model.Metric{"", model.MetricRequests, model.MetricTCPSent}
	sides      = []model.Sides{model.SideClient, model.SideServer, model.BothSides}
)

func (w *World) maybe() *bool {
	v := w.Chance(0.5)
	return Pick(w, []*bool{nil, &v})
}

func (w *World) telemetry() model.Object {
	t := &model.Telemetry{Meta: w.meta(model.KindTelemetry)}
	w.selectOrTarget(&t.Selector, &t.Targets)
	for range w.IntN(3) {
		t.Metrics = append(t.Metrics, model.MetricsRule{Providers: w.providers(), Overrides: []model.MetricOverride{{
			Metric: Pick(w, metrics), Sides: Pick(w, sides), Disabled: w.maybe(),
			Tags: []model.TagOverride{{Name: Pick(w, names), Remove: w.Chance(0.5), Format: "x"}},
		}}})
	}
	for range w.IntN(3) {
		t.Logging = append(t.Logging, model.LoggingRule{
			Providers: w.providers(), Sides: Pick(w, sides), Disabled: w.maybe(), Filter: Pick(w, []string{"", "true"}),
		})
	}
	for range w.IntN(3) {
		sampling := float64(w.IntN(3))
		t.Tracing = append(t.Tracing, model.TracingRule{
			Provider: Pick(w, append(collectors, "")), Sides: Pick(w, sides), Disabled: w.maybe(),
			Sampling: Pick(w, []*float64{nil, &sampling}), RequestID: w.maybe(),
			Tags: map[string]model.TraceTag{Pick(w, names): {Literal: "x"}},
		})
	}
	return t
}

func (w *World) providers() []string {
	var out []string
	for range w.IntN(3) {
		out = append(out, Pick(w, collectors))
	}
	return out
}

// meshTelemetry has providers whose services come and go.
func (w *World) meshTelemetry() *model.MeshTelemetry {
	if w.Chance(0.3) {
		return nil
	}
	t := model.DefaultMeshTelemetry()
	t.Providers = append(t.Providers,
		model.Provider{Name: "json", Kind: model.ProviderFileLog, Log: model.LogFormat{Path: "/dev/null", JSON: "{}"}},
		model.Provider{Name: "als", Kind: model.ProviderHTTPLog, Host: w.host(), Port: 80},
		model.Provider{Name: "otel", Kind: model.ProviderOpenTelemetry, Host: w.host(), Port: 9000},
		model.Provider{Name: "zipkin", Kind: model.ProviderZipkin, Host: w.host(), Port: 80, Path: "/x", Namespace: Pick(w, []string{"", "a"})},
	)
	t.Metrics, t.Logging, t.Tracing = w.providers(), w.providers(), w.providers()
	return &t
}
