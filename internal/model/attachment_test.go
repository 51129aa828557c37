package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func listenerOf(port uint32, protocol Protocol, host Host) *GatewayServer {
	out := &GatewayServer{
		Port: GatewayPort{Number: port, Name: "http", Protocol: protocol}, Hosts: []HostSelector{{Namespace: "shop", Host: host}},
		Routes: []Kind{KindHTTPRoute},
	}
	if protocol.IsTLS() {
		out.TLS = &ServerTLS{Mode: ServerSimple}
	}
	return out
}

// istioServer is the same as a server of Istio's Gateway.
func istioServer(s *GatewayServer) *GatewayServer {
	s.Routes = nil
	return s
}

// TestConflict follows "Distinct Listeners" of the Gateway API's GatewaySpec: listeners with one port need different
// hostnames (HTTP, HTTPS, TLS), and share it with no TCP listener.
func TestConflict(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b *GatewayServer
		want ConflictReason
	}{
		{"HTTP, different hosts", listenerOf(80, ProtocolHTTP, "a"), listenerOf(80, ProtocolHTTP, "b"), ""},
		{"HTTP, one wider host", listenerOf(80, ProtocolHTTP, "*.a"), listenerOf(80, ProtocolHTTP, "b.a"), ""},
		{"HTTP, one host", listenerOf(80, ProtocolHTTP, "a"), listenerOf(80, ProtocolHTTP, "a"), HostnameConflict},
		{"HTTP, two ports that lead to one", listenerOf(80, ProtocolHTTP, "a"), listenerOf(81, ProtocolHTTP, "a"), ""},
		{"HTTP of Istio, one host", istioServer(listenerOf(80, ProtocolHTTP, "a")), istioServer(listenerOf(80, ProtocolHTTP, "a")), ""},
		{"HTTP of Istio and the Gateway API", istioServer(listenerOf(80, ProtocolHTTP, "a")), listenerOf(80, ProtocolHTTP, "a"), ""},
		{"HTTPS, one host", listenerOf(443, ProtocolHTTPS, "a"), listenerOf(443, ProtocolHTTPS, "a"), HostnameConflict},
		{"HTTPS and TLS, one host", listenerOf(443, ProtocolHTTPS, "a"), listenerOf(443, ProtocolTLS, "a"), HostnameConflict},
		{"HTTPS and TLS, different hosts", listenerOf(443, ProtocolHTTPS, "a"), listenerOf(443, ProtocolTLS, "b"), ""},
		{"HTTP and HTTPS", listenerOf(443, ProtocolHTTP, "a"), listenerOf(443, ProtocolHTTPS, "b"), ProtocolConflict},
		{"HTTP and TCP", listenerOf(80, ProtocolHTTP, "a"), listenerOf(80, ProtocolTCP, "*"), ProtocolConflict},
		{"TLS and TCP", listenerOf(80, ProtocolTLS, "a"), listenerOf(80, ProtocolTCP, "*"), ProtocolConflict},
		{"TCP, hosts do not count", listenerOf(80, ProtocolTCP, "a"), listenerOf(80, ProtocolTCP, "b"), ProtocolConflict},
	} {
		require.Equal(t, c.want, c.a.Conflict(c.b).Reason, c.name)
		require.Equal(t, c.want, c.b.Conflict(c.a).Reason, "%s, the other way round", c.name)
	}
}

func TestAttach(t *testing.T) {
	g := &Gateway{Meta: Meta{Key: Key{Kind: KindKubernetesGateway, Namespace: "shop", Name: "web"}}}
	for _, c := range []struct {
		name, parent, namespace string
		kind                    Kind
		host                    Host
		want                    AttachReason
		hosts                   []Host
	}{
		{"any listener", KubernetesGatewayName("shop", "web", "", 0), "shop", KindHTTPRoute, "*", Attached, []Host{"*.a"}},
		{"by name and port", KubernetesGatewayName("shop", "web", "http", 80), "shop", KindHTTPRoute, "b.a", Attached, []Host{"b.a"}},
		{"another listener", KubernetesGatewayName("shop", "web", "other", 0), "shop", KindHTTPRoute, "*", NoMatchingParent, nil},
		{"another port", KubernetesGatewayName("shop", "web", "", 81), "shop", KindHTTPRoute, "*", NoMatchingParent, nil},
		{"another Gateway", KubernetesGatewayName("shop", "next", "", 0), "shop", KindHTTPRoute, "*", NoMatchingParent, nil},
		{"another kind", KubernetesGatewayName("shop", "web", "", 0), "shop", KindTCPRoute, "*", NotAllowedByListeners, nil},
		{"another namespace", KubernetesGatewayName("shop", "web", "", 0), "edge", KindHTTPRoute, "*", NotAllowedByListeners, nil},
		{"another host", KubernetesGatewayName("shop", "web", "", 0), "shop", KindHTTPRoute, "b", NoMatchingListenerHostname, nil},
	} {
		route := &VirtualService{Meta: Meta{Key: Key{Kind: c.kind, Namespace: c.namespace, Name: "r"}}, Gateways: []string{c.parent}, Hosts: []Host{c.host}}
		require.Equal(t, Attachment{c.want, c.hosts}, g.Attach(listenerOf(80, ProtocolHTTP, "*.a"), route), c.name)
	}
	for name, want := range map[string]bool{
		KubernetesGatewayName("shop", "web", "", 0): true, KubernetesGatewayName("shop", "web", "none", 0): true,
		KubernetesGatewayName("shop", "web", "", 81): true, KubernetesGatewayName("shop", "web2", "", 0): false, "shop/web": false,
	} {
		require.Equal(t, want, g.IsParent(name), name)
	}
}
