package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/simulate"
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
