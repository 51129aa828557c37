package engine

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

const managerName = "envoy.filters.network.http_connection_manager"

// filterWith is an EnvoyFilter with one patch of the outbound configuration of the workloads of shop.
func filterWith(t *testing.T, p model.EnvoyPatch, value proto.Message) store.Event {
	t.Helper()
	encoded, err := proto.Marshal(value)
	require.NoError(t, err)
	p.Context, p.Value = model.PatchOutbound, encoded
	f := &model.EnvoyFilter{Meta: model.Meta{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}}}
	f.Patches = []model.EnvoyPatch{p}
	return store.Event{Key: f.Key, Object: f}
}

func manager(t *testing.T, m *hcmv3.HttpConnectionManager) *listenerv3.Filter {
	t.Helper()
	config, err := anypb.New(m)
	require.NoError(t, err)
	return &listenerv3.Filter{Name: managerName, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}
}

func rds(name string, source *corev3.ConfigSource) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:     "test",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: name, ConfigSource: source}},
	}
}

func inline(t *testing.T) *hcmv3.HttpConnectionManager {
	t.Helper()
	router, err := anypb.New(&routerv3.Router{})
	require.NoError(t, err)
	return &hcmv3.HttpConnectionManager{
		StatPrefix: "test",
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: "inline"}},
	}
}

// TestRouteConfigsOfPatchedListeners checks that a listener has the names of the route configurations
// that Envoy asks for after patches, not before.
func TestRouteConfigsOfPatchedListeners(t *testing.T) {
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	file := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{
		PathConfigSource: &corev3.PathConfigSource{Path: "/etc/routes.yaml"},
	}}
	on := model.EnvoyPatch{
		Target: model.PatchNetworkFilter, Operation: model.PatchMerge,
		Listener: &model.ListenerMatch{Name: "0.0.0.0_80", Filter: managerName},
	}
	replace := on
	replace.Operation = model.PatchReplace
	addition := model.EnvoyPatch{Target: model.PatchListener, Operation: model.PatchAdd, Name: "added"}
	added := &listenerv3.Listener{
		Name:               "added",
		FilterChains:       []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{manager(t, rds("80", ads))}}},
		DefaultFilterChain: &listenerv3.FilterChain{Filters: []*listenerv3.Filter{manager(t, rds("8080", ads))}},
	}

	e, in, r := start(t)
	in.Put(service("a", 80))
	in.Synced("test")
	await.From(t, r)
	tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	for _, c := range []struct {
		name     string
		filter   store.Event
		listener string
		want     []string
	}{
		{"no patch", service("b", 80), "0.0.0.0_80", []string{"80"}},
		{"renamed", filterWith(t, on, manager(t, rds("mine", nil))), "0.0.0.0_80", []string{"mine"}},
		{"inline", filterWith(t, replace, manager(t, inline(t))), "0.0.0.0_80", nil},
		{"of a file", filterWith(t, on, manager(t, rds("", file))), "0.0.0.0_80", nil},
		{"added", filterWith(t, addition, added), "added", []string{"80", "8080"}},
		{"patch gone", store.Event{Key: filterWith(t, on, added).Key}, "0.0.0.0_80", []string{"80"}},
	} {
		in.Put(c.filter)
		await.From(t, r)
		require.Empty(t, e.Failures(), c.name)
		got := tables[0].State().Get(resource.Listener, c.listener)
		require.NotNil(t, got, c.name)
		require.Equal(t, c.want, got.Resource().RouteConfigs, c.name)
	}
}

// TestRefusedRouteOfASharedHost checks a host of a gateway that several VirtualServices share. A route of
// one of them that cannot be translated is listed, and does not hold back the routes of the others.
func TestRefusedRouteOfASharedHost(t *testing.T) {
	const name = "http.80/www.example.com:80"
	gateway := &model.Gateway{
		Meta: model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "shop", Name: "edge"}},
		Servers: []model.GatewayServer{{
			Port:  model.GatewayPort{Number: 80, Name: "http", Protocol: model.ProtocolHTTP},
			Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
		}},
	}
	version := 0
	answers := func(name, path string, code uint32) store.Event {
		version++
		v := &model.VirtualService{
			Meta:  model.Meta{Key: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: name}, ResourceVersion: fmt.Sprint(version)},
			Hosts: []model.Host{"www.example.com"}, Gateways: []string{"shop/edge"},
			HTTP: []model.HTTPRoute{{
				Matches:        []model.HTTPMatch{{URI: &model.StringMatch{Kind: model.MatchPrefix, Value: path}}},
				DirectResponse: &model.DirectResponse{Status: code},
			}},
		}
		return store.Event{Key: v.Key, Object: v}
	}
	e, in, r := start(t)
	in.Put(store.Event{Key: gateway.Key, Object: gateway}, answers("a", "/a", 201), answers("b", "/b", 202))
	in.Synced("test")
	<-r
	router := proxy("edge", "shop")
	router.Type = model.ProxyRouter
	tables, release, err := e.Bind(context.Background(), router, nil)
	require.NoError(t, err)
	defer release()
	expect := func(want ...uint32) {
		t.Helper()
		require.Equal(t, want, statuses(t, tables[0].State().Get(resource.VirtualHost, name)))
	}
	expect(201, 202)

	in.Put(answers("a", "/a", 9), answers("b", "/b", 203))
	<-r
	expect(500, 203)
	failures := e.Failures()
	require.Len(t, failures, 1)
	require.Equal(t, name, failures[0].Name)
	require.Contains(t, failures[0].Error, "of VirtualService shop/a: directResponse.status 9")

	in.Put(store.Event{Key: answers("b", "/b", 0).Key})
	<-r
	expect(500)
	require.Len(t, e.Failures(), 1)
	in.Put(answers("a", "/a", 204))
	<-r
	expect(204)
	require.Empty(t, e.Failures())
}

// TestRefusedRouteOfASidecar checks a service of a sidecar with a VirtualService of which one rule cannot be translated. The
// valid version of the VirtualService stays, if there is one. Otherwise the other rules apply, whatever the sidecar had before.
func TestRefusedRouteOfASidecar(t *testing.T) {
	const name, valid, invalid = "80/a.shop.svc.cluster.local:80", 204, 9
	type version struct{ admin, old uint32 } // the statuses of two rules
	for _, c := range []struct {
		name     string
		versions []version
		want     []uint32 // of the last one
	}{
		{"first", []version{{403, invalid}}, []uint32{403, 500}},
		{"after a valid one", []version{{401, valid}, {403, invalid}}, []uint32{401, valid}},
		{"after a valid and an invalid one", []version{{401, valid}, {402, invalid}, {403, invalid}}, []uint32{401, valid}},
		{"after an invalid one", []version{{401, invalid}, {403, invalid}}, []uint32{403, 500}},
		{"corrected", []version{{401, invalid}, {403, valid}}, []uint32{403, valid}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, in, r := start(t)
			in.Put(service("a", 80))
			in.Synced("test")
			await.From(t, r)
			tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
			require.NoError(t, err)
			defer release()
			for i, v := range c.versions {
				rule := func(path string, status uint32) model.HTTPRoute {
					return model.HTTPRoute{
						Matches:        []model.HTTPMatch{{URI: &model.StringMatch{Kind: model.MatchPrefix, Value: path}}},
						DirectResponse: &model.DirectResponse{Status: status},
					}
				}
				o := &model.VirtualService{
					Meta:  model.Meta{Key: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "a"}, ResourceVersion: fmt.Sprint(i)},
					Hosts: []model.Host{"a.shop.svc.cluster.local"}, Gateways: []string{model.GatewayMesh},
					HTTP: []model.HTTPRoute{rule("/admin", v.admin), rule("/old", v.old)},
				}
				in.Put(store.Event{Key: o.Key, Object: o})
				await.From(t, r)
			}
			require.Equal(t, c.want, statuses(t, tables[0].State().Get(resource.VirtualHost, name)))
			require.Equal(t, c.versions[len(c.versions)-1].old == invalid, len(e.Failures()) == 1)
		})
	}
}

// statuses are those with which the routes of a virtual host answer.
func statuses(t *testing.T, entry *table.Entry) (out []uint32) {
	t.Helper()
	require.NotNil(t, entry)
	packed, host := &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.route.v3.VirtualHost", Value: entry.Resource().Value()}, &routev3.VirtualHost{}
	require.NoError(t, packed.UnmarshalTo(host))
	for _, route := range host.Routes {
		out = append(out, route.GetDirectResponse().GetStatus())
	}
	return out
}

// TestFailuresOfOneResource checks that several failures of one resource are joined, and replaced when it
// is translated again.
func TestFailuresOfOneResource(t *testing.T) {
	list := newFailures(slog.New(slog.DiscardHandler))
	texts := func() map[string]string {
		out := map[string]string{}
		for _, f := range list.list {
			out[f.Name] = f.Error
		}
		return out
	}
	list.replace(&translation{failed: []Failure{
		{Name: "a", Error: "a route", kind: routesRefused}, {Name: "b", Error: "another"}, {Name: "a", Error: "a patch", kind: patchLeftOut},
	}})
	require.Equal(t, map[string]string{"a": "a route; a patch", "b": "another"}, texts())
	list.replace(&translation{failed: []Failure{{Name: "a", Error: "a patch", kind: patchLeftOut}}})
	require.Equal(t, map[string]string{"a": "a patch", "b": "another"}, texts())
}

// TestKeptClusterKeepsItsEndpoints checks that the last valid version of a cluster stays with its endpoints if its new form
// would have none, and that these go with it.
func TestKeptClusterKeepsItsEndpoints(t *testing.T) {
	const name = "outbound|80||api.example.com"
	entry := func(resolution model.Resolution, addresses ...string) store.Event {
		s := &model.ServiceEntry{
			Meta: model.Meta{
				Key:             model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "api"},
				ResourceVersion: fmt.Sprint(resolution, addresses),
			},
			Hosts:    []model.Host{"api.example.com"},
			Template: model.Service{Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Resolution: resolution, External: true},
		}
		for _, a := range addresses {
			s.Template.Inline = append(s.Template.Inline, model.Endpoint{Address: a})
		}
		return store.Event{Key: s.Key, Object: s}
	}
	e, in, r := start(t)
	in.Put(entry(model.ResolutionStatic, "192.0.2.1"))
	in.Synced("test")
	await.From(t, r)
	tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	has := func(typ resource.Type) bool { return tables[0].State().Get(typ, name) != nil }
	valid := tables[0].State().Get(resource.Cluster, name)
	require.True(t, has(resource.Endpoints))

	in.Put(entry(model.ResolutionDNSRoundRobin, "unix:///app.sock"))
	await.From(t, r)
	require.Len(t, e.Failures(), 1)
	require.Same(t, valid, tables[0].State().Get(resource.Cluster, name))
	require.True(t, has(resource.Endpoints))

	in.Put(entry(model.ResolutionDNSRoundRobin, "one.example.net"))
	await.From(t, r)
	require.Empty(t, e.Failures())
	require.True(t, has(resource.Cluster))
	require.False(t, has(resource.Endpoints))

	in.Put(entry(model.ResolutionStatic, "192.0.2.1"))
	await.From(t, r)
	in.Put(entry(model.ResolutionDNSRoundRobin, "unix:///app.sock"))
	await.From(t, r)
	in.Put(store.Event{Key: entry("", "").Key})
	await.From(t, r)
	require.False(t, has(resource.Cluster))
	require.False(t, has(resource.Endpoints))
}
