package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

func TestGatewaysThatACallCameBy(t *testing.T) {
	g := &model.Gateway{Meta: model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "edge", Name: "web"}}}
	https := model.GatewayServer{
		Port:  model.GatewayPort{Number: 443, Name: "https", Protocol: model.ProtocolHTTPS},
		Hosts: []model.HostSelector{{Namespace: "*", Host: "*.example.com"}}, TLS: &model.ServerTLS{Mode: model.ServerSimple},
	}
	plain := model.GatewayServer{
		Port: model.GatewayPort{Number: 80, Name: "http", Protocol: model.ProtocolHTTP}, Hosts: https.Hosts,
	}
	for name, tc := range map[string]struct {
		server *model.GatewayServer
		result simulate.Result
		opens  bool
	}{
		"TLS":                   {&https, simulate.Result{RouteConfig: "https.443.https.web.edge", EndsTLS: true}, true},
		"TLS, bound":            {&https, simulate.Result{RouteConfig: "https.443.https.web.edge.10.0.0.1", EndsTLS: true}, true},
		"TLS of another":        {&https, simulate.Result{RouteConfig: "https.443.https.web.edge2", EndsTLS: true}, false},
		"plain text":            {&plain, simulate.Result{RouteConfig: "http.8080", VirtualHost: "http.8080/a.example.com:80"}, true},
		"another host":          {&plain, simulate.Result{RouteConfig: "http.8080", VirtualHost: "http.8080/example.org:80"}, false},
		"plain text, not TLS":   {&https, simulate.Result{RouteConfig: "http.8080", VirtualHost: "http.8080/a.example.com:80"}, false},
		"plain text, no routes": {&plain, simulate.Result{}, false},
	} {
		require.Equal(t, tc.opens, opens(g, tc.server, &tc.result), name)
	}
}

// TestWhatAGatewayIsIn: in what has the names of its route configurations, at whatever port a Service leads
// it to; and in nothing of sidecars.
func TestWhatAGatewayIsIn(t *testing.T) {
	s := store.New()
	for _, doc := range []string{
		gatewayDocument("web", "edge", "{istio: edge}", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}, "+
			"{port: {number: 443, name: https, protocol: HTTPS}, bind: 10.0.0.9, hosts: ['*'], tls: {mode: SIMPLE, credentialName: x}}"),
		"apiVersion: v1\nkind: Service\nmetadata: {name: edge, namespace: edge}\nspec: {selector: {istio: edge}, ports: [{name: http, port: 80, targetPort: 8080}]}",
	} {
		o := decode(t, doc)
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	related := relation(s.Snapshot(), model.Key{Kind: model.KindGateway, Namespace: "edge", Name: "web"})
	for _, tc := range []struct {
		typ        resource.Type
		name, text string
		want       bool
	}{
		{resource.Listener, "0.0.0.0_8080", "\x09http.8080\x12", true},
		{resource.Listener, "10.0.0.9_443", "\x21https.443.https.web.edge.10.0.0.92", true},
		{resource.Listener, "0.0.0.0_80", "outbound_0.0.0.0_80;\x1280\x1a", false},
		{resource.Listener, "0.0.0.0_8081", "\x09http.8081\x12", false},
		{resource.Listener, "0.0.0.0_800", "\x08http.800\x12", false},
		{resource.RouteConfig, "http.8080", "", true},
		{resource.RouteConfig, "80", "", false},
		{resource.VirtualHost, "http.80/a.example.com:80", "", true},
		{resource.VirtualHost, "https.443.https.other.edge/a.example.com:443", "", false},
		{resource.Cluster, "http.80", "http.80", false},
	} {
		tab := table.New("t")
		tab.Commit(1, []table.Update{{Type: tc.typ, Name: tc.name, Resource: resource.EncodeBytes(tc.typ, tc.name, []byte(tc.text))}})
		require.Equal(t, tc.want, related(tc.typ, tab.State().Get(tc.typ, tc.name)), "%s %q", tc.name, tc.text)
	}
}
