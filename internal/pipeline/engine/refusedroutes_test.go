package engine

import (
	"context"
	"fmt"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestRouteOfOneAmongOthers: at a gateway hosts may be of several VirtualServices. A route of one of them that cannot
// be translated does not hold up the others', and is told of.
func TestRouteOfOneAmongOthers(t *testing.T) {
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
		entry := tables[0].State().Get(resource.VirtualHost, name)
		require.NotNil(t, entry)
		packed, host := &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.route.v3.VirtualHost", Value: entry.Resource().Value()}, &routev3.VirtualHost{}
		require.NoError(t, packed.UnmarshalTo(host))
		var got []uint32
		for _, route := range host.Routes {
			got = append(got, route.GetDirectResponse().GetStatus())
		}
		require.Equal(t, want, got)
	}
	expect(201, 202)

	in.Put(answers("a", "/a", 9), answers("b", "/b", 203))
	<-r
	expect(500, 203)
	failures := e.Failures(context.Background())
	require.Len(t, failures, 1)
	require.Equal(t, name, failures[0].Name)
	require.Contains(t, failures[0].Error, "of VirtualService shop/a: directResponse.status 9")

	in.Put(store.Event{Key: answers("b", "/b", 0).Key})
	<-r
	expect(500)
	require.Len(t, e.Failures(context.Background()), 1)
	in.Put(answers("a", "/a", 204))
	<-r
	expect(204)
	require.Empty(t, e.Failures(context.Background()))
}
