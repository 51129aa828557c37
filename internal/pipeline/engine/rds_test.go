package engine

import (
	"context"
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
	"github.com/moonsail/moonsail/test/await"
)

const managerName = "envoy.filters.network.http_connection_manager"

// filterWith is an EnvoyFilter with one patch for what the workloads of shop call.
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

// TestRouteConfigsOfPatchedListeners holds that a listener has the names of the route
// configurations that Envoy asks for, and not those that it would ask for without patches.
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
		require.Empty(t, e.Failures(context.Background()), c.name)
		got := tables[0].State().Get(resource.Listener, c.listener)
		require.NotNil(t, got, c.name)
		require.Equal(t, c.want, got.Resource().RouteConfigs, c.name)
	}
}
