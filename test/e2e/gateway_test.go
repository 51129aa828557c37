package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// Ports of the gateway. It has no Service, so they are those of its Gateway.
const gatewayHTTP, gatewayHTTPS = 18090, 18443

const (
	webHost    = "web.example.com"
	mutualHost = "mutual.example.com"
	gatewayID  = "spiffe://cluster.local/ns/edge/sa/gateway"
)

// edge is a mesh with a gateway, which has the certificates of a Secret of its namespace.
type edge struct {
	*mutual
	gateway *member
	outside *catest.Root // of the gateway's certificates, and of its clients'
}

func startEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{mutual: startMutual(t), gateway: newMember("gateway")}
	var err error
	e.outside, err = catest.NewRoot("outside")
	require.NoError(t, err)
	c := e.gateway.config(t, e.mutual, "gateway-token")
	c.Type, c.Workload.Namespace, c.Workload.Labels = model.ProxyRouter, "edge", map[string]string{"istio": "ingressgateway", model.LabelGatewayName: "edge"}
	e.gateway.run(t, c)
	eventually(t, "the gateway is ready, though it has nothing to listen for yet", func() bool {
		return strings.Contains(e.gateway.log.String(), "gateway ready")
	}, func() string { return e.gateway.log.String() + describe(e.proxies()) })
	return e
}

// documents are the Gateway, and the virtual service that is bound to it.
func (e *edge) documents() string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: %[2]d, name: http, protocol: HTTP}
    bind: %[1]s
    hosts: ["*.example.com"]
    tls: {httpsRedirect: true}
  - port: {number: %[3]d, name: https, protocol: HTTPS}
    bind: %[1]s
    hosts: [shop/%[4]s]
    tls: {mode: SIMPLE, credentialName: web}
  - port: {number: %[3]d, name: mutual, protocol: HTTPS}
    bind: %[1]s
    hosts: [%[5]s]
    tls: {mode: MUTUAL, credentialName: web}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [%[4]s, %[5]s]
  gateways: [edge/edge]
  http:
  - match: [{uri: {prefix: /teapot}}]
    directResponse: {status: 418}
  - route: [{destination: {host: server, port: {number: %[6]d}}}]`,
		e.gateway.ip, gatewayHTTP, gatewayHTTPS, webHost, mutualHost, serviceHTTP)
}

// secret returns a Secret with a new certificate for the gateway's hosts, and the CA of clients.
func (e *edge) secret(t *testing.T, name string) string { return webSecret(t, e.outside, "edge", name) }

// webSecret returns a Secret with a new certificate for hosts of the web, and the CA of clients.
func webSecret(t *testing.T, root *catest.Root, namespace, name string) string {
	t.Helper()
	pair, err := root.Pair(time.Hour, []string{"spiffe://outside/" + name}, []string{webHost, mutualHost})
	require.NoError(t, err)
	document, _ := tlsSecret(t, root, pair, namespace, "web")
	return document
}

// fromOutside is the response to a client outside of the mesh.
type fromOutside struct {
	status       int
	location, by string // by: the URI of the gateway's certificate
	err          error
}

// call calls a host through the gateway on a separate connection.
func (e *edge) call(scheme, host, path string, cert *tls.Certificate) fromOutside {
	e.t.Helper()
	port := map[string]int{"http": gatewayHTTP, "https": gatewayHTTPS}[scheme]
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, fmt.Sprintf("%s://%s:%d%s", scheme, e.gateway.ip, port, path), http.NoBody)
	require.NoError(e.t, err)
	req.Host, req.Close = host, true
	req.Header.Set("X-Forwarded-Client-Cert", "URI="+spiffeID("client")) // a client can claim anything
	req.Header.Set("X-Forwarded-For", "192.0.2.99")
	req.Header.Set("X-Envoy-Ip-Tags", "trusted") // only proxies may set it
	roots := x509.NewCertPool()
	roots.AddCert(e.outside.Cert)
	config := &tls.Config{ServerName: host, RootCAs: roots, MinVersion: tls.VersionTLS12}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	client := http.Client{
		Timeout: callLimit, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return fromOutside{err: err}
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	out := fromOutside{status: resp.StatusCode, location: resp.Header.Get("Location"), err: err}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates[0].URIs) > 0 {
		out.by = resp.TLS.PeerCertificates[0].URIs[0].String()
	}
	return out
}

// requireAnswer waits for a response over TLS: the gateway ACKs a listener before it has the listener's secrets and
// routes.
func (e *edge) requireAnswer(want int, path string) {
	e.t.Helper()
	var got fromOutside
	eventually(e.t, "the gateway answers", func() bool {
		got = e.call("https", webHost, path, nil)
		return got.status == want
	}, func() string { return fmt.Sprintf("%+v\n%s", got, e.gateway.log) })
}

// TestGateway checks that calls from outside reach a gateway with TLS, and a sidecar with mutual TLS of the mesh. A new
// certificate must not need a new listener.
func TestGateway(t *testing.T) {
	e := startEdge(t)
	require.Error(t, e.call("http", webHost, "/", nil).err, "nothing listens")

	e.apply(e.config("server", e.documents(), e.secret(t, "one"))...)
	e.requireAnswer(http.StatusOK, "/hello")
	got := e.call("https", webHost, "/hello", nil)
	require.NoError(t, got.err)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "spiffe://outside/one", got.by)
	seen := e.server.backend.last(t)
	require.Equal(t, gatewayID, e.peer(), "the sidecar was called by mutual TLS")
	require.NotContains(t, seen.header.Get("X-Forwarded-Client-Cert"), spiffeID("client"), "what clients say of themselves is not believed")
	require.Empty(t, seen.header.Get("X-Envoy-Ip-Tags"), "clients at private addresses are no proxies (CVE-2024-45806)")
	require.Equal(t, "https", seen.header.Get("X-Forwarded-Proto"))
	require.Equal(t, webHost, seen.host)

	require.Equal(t, http.StatusTeapot, e.call("https", webHost, "/teapot", nil).status)
	require.Equal(t, http.StatusOK, e.call("https", mutualHost, "/", e.pair(e.outside, "spiffe://outside/client")).status)
	require.Error(t, e.call("https", mutualHost, "/", nil).err, "it asks for a certificate")
	require.Error(t, e.call("https", mutualHost, "/", e.pair(e.root, spiffeID("client"))).err, "it asks for one of its CA")
	require.Error(t, e.call("https", "other.example.com", "/", nil).err, "no server has that name")
	got = e.call("http", webHost, "/x", nil)
	require.Equal(t, http.StatusMovedPermanently, got.status)
	require.Equal(t, "https://"+webHost+"/x", got.location)

	listeners := e.listenersTaken(t)
	e.apply(e.config("server", e.documents(), e.secret(t, "two"))...)
	eventually(t, "the new certificate is shown", func() bool {
		return e.call("https", webHost, "/", nil).by == "spiffe://outside/two"
	}, func() string { return e.gateway.log.String() })
	require.Equal(t, listeners, e.listenersTaken(t), "Envoy was given no listener again")

	e.requireTLSDefaults()
	e.requireTopology()

	e.apply(e.config("server")...)
	eventually(t, "the gateway listens no more", func() bool { return e.call("https", webHost, "/", nil).err != nil }, func() string { return "" })
	e.requireNothingHeld()
}

// TestRefusedGateway checks resources that only the router can refuse: a file that it does not have, and a path with
// "~", which its Envoy reads itself. The status of the Gateway must report the refusal, also if another object changed
// in the same batch, and no other status may.
func TestRefusedGateway(t *testing.T) {
	e := startEdge(t)
	fromFiles := strings.Replace(e.documents(), "{mode: SIMPLE, credentialName: web}", "{mode: SIMPLE, serverCertificate: /nonexistent/~cert.pem, privateKey: /nonexistent/~key.pem}", 1)
	e.apply(e.config("server", fromFiles, e.secret(t, "one"))...)
	refused := e.explained("gateway/edge/edge", func(x *explain.Explanation) bool { return x.Counts.Refused == 1 })
	require.Equal(t, "gateway", refused.Proxies[0].Name)
	require.Contains(t, refused.Proxies[0].Reasons[0].Text, "/nonexistent/~key.pem")
	e.explained("virtualservice/shop/web", func(x *explain.Explanation) bool { return x.Counts.Refused == 0 && x.Counts.Acked == 1 })
	eventually(t, "its other listener is there", func() bool {
		return e.call("http", webHost, "/x", nil).status == http.StatusMovedPermanently
	}, e.gateway.log.String)

	e.apply(e.config("server", e.documents(), e.secret(t, "one"))...)
	e.requireAnswer(http.StatusOK, "/")
	e.requireNothingHeld()
}

func (e *edge) listenersTaken(t *testing.T) uint64 {
	t.Helper()
	stats, err := e.gateway.admin.Stats(t.Context(), "^listener_manager.listener_(added|modified|in_place_updated)$")
	require.NoError(t, err)
	return stats["listener_manager.listener_added"] + stats["listener_manager.listener_modified"] + stats["listener_manager.listener_in_place_updated"]
}

// TestGatewaySecretsAreForTheirRouters checks that no other proxy gets the Secrets of a gateway by name, whatever its node
// metadata claims.
func TestGatewaySecretsAreForTheirRouters(t *testing.T) {
	e := startEdge(t)
	e.apply(e.config("server", e.documents(), e.secret(t, "one"))...)
	own := e.credentials(e.pair(e.root, gatewayID))
	foreign := e.credentials(e.pair(e.root, "spiffe://cluster.local/ns/bank/sa/gateway"))
	gateway := map[string]any{"istio": "ingressgateway"}
	for name, tc := range map[string]struct {
		address string
		asks    asking
		by      credentials.TransportCredentials
		gets    bool
	}{
		"the gateway":                           {e.secure, asking{"router", "edge", "gateway", gateway, "kubernetes://web"}, own, true},
		"the gateway, for another Secret":       {e.secure, asking{"router", "edge", "gateway", gateway, "kubernetes://other"}, own, false},
		"a gateway that no Gateway selects":     {e.secure, asking{"router", "edge", "gateway", map[string]any{"istio": "other"}, "kubernetes://web"}, own, false},
		"a sidecar":                             {e.secure, asking{"sidecar", "edge", "gateway", gateway, "kubernetes://web"}, own, false},
		"a gateway of another namespace":        {e.secure, asking{"router", "bank", "gateway", gateway, "kubernetes://web"}, foreign, false},
		"that one, with the Secret's namespace": {e.secure, asking{"router", "bank", "gateway", gateway, "kubernetes://edge/web"}, foreign, false},
		"a gateway without a certificate":       {e.xds, asking{"router", "edge", "gateway", gateway, "kubernetes://web"}, insecure.NewCredentials(), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.asks.answer(t, tc.address, tc.by)
			if tc.gets {
				require.Len(t, got.Resources, 1)
				return
			}
			require.Empty(t, got.Resources)
			require.Equal(t, []string{tc.asks.name}, got.RemovedResources)
		})
	}
}

// asking is a proxy that subscribes to one secret.
type asking struct {
	kind, namespace, account string
	labels                   map[string]any
	name                     string
}

func (a asking) answer(t *testing.T, address string, by credentials.TransportCredentials) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(by))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(await.Context(t))
	require.NoError(t, err)
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": a.namespace, "LABELS": a.labels, "SDS": "true", "SERVICE_ACCOUNT": a.account})
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node:    &corev3.Node{Id: fmt.Sprintf("%[1]s~127.0.0.9~thief.%[2]s~%[2]s.svc.cluster.local", a.kind, a.namespace), Metadata: metadata},
		TypeUrl: resource.SecretURL, ResourceNamesSubscribe: []string{a.name},
	}))
	got, err := stream.Recv()
	require.NoError(t, err)
	return got
}
