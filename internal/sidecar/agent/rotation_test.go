package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Ports of a client's listeners: one uses a single connection to the server, one a connection for each request.
const (
	keptPort  = 18081
	freshPort = 18082
)

// mutualTLS is TLS with peers whose SPIFFE id has a prefix.
func mutualTLS(prefix string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{sdsSecret("default")},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				ValidationContextSdsSecretConfig: sdsSecret("ROOTCA"),
				DefaultValidationContext: &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{
					SanType: tlsv3.SubjectAltNameMatcher_URI,
					Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}},
				}}},
			},
		},
	}
}

func tlsSocket(m proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(m)}}
}

// sdsSecret refers to a secret of the agent like Envoy's bootstrap.
func sdsSecret(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "sds-grpc"}}}},
		}},
		InitialFetchTimeout: durationpb.New(0),
		ResourceApiVersion:  corev3.ApiVersion_V3,
	}}
}

// addServer adds a listener that requires certificates of namespace shop.
func (p *securePlane) addServer(ip string, app net.Addr) {
	l, c := namedRoute(ip+"-srv", ip+"-srv", ip, appPort, app)
	l.FilterChains[0].TransportSocket = tlsSocket(&tlsv3.DownstreamTlsContext{
		RequireClientCertificate: wrapperspb.Bool(true), CommonTlsContext: mutualTLS("spiffe://cluster.local/ns/shop/")})
	p.add(resource.ListenerURL, l.Name, l)
	p.add(resource.ClusterURL, c.Name, c)
}

// addClient adds two listeners that forward to the server.
func (p *securePlane) addClient(ip, server string) {
	to := &net.TCPAddr{IP: net.ParseIP(server), Port: appPort}
	for _, port := range []uint16{keptPort, freshPort} {
		name := fmt.Sprintf("%s-%d", ip, port)
		l, c := namedRoute(name, name, ip, port, to)
		c.TransportSocket = tlsSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: mutualTLS(appID)})
		if port == freshPort {
			oneRequestEach(c)
		}
		p.add(resource.ListenerURL, l.Name, l)
		p.add(resource.ClusterURL, c.Name, c)
	}
}

// oneRequestEach makes a cluster use each connection for one request.
func oneRequestEach(c *clusterv3.Cluster) {
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(&httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{MaxRequestsPerConnection: wrapperspb.UInt32(1)},
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{}}},
	})}
}

func (s *sidecar) identity() identity.State {
	_, body := s.get(DefaultStatusPort, "/debug/identity")
	var st identity.State
	_ = json.Unmarshal([]byte(body), &st) // no answer: the zero State
	return st
}

// couple is a server and a client with calls between them, and their control plane.
type couple struct {
	*securePlane
	t              *testing.T
	server, client *sidecar
	outsider       *sidecar // of another namespace
	kept, fresh    *calls
}

// startCouple issues certificates with a long lifetime that are renewed soon. None expires on a busy machine.
func startCouple(t *testing.T) *couple {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))
	t.Cleanup(app.Close)
	serverIP, clientIP, outsiderIP := ownIP(), ownIP(), ownIP()
	c := &couple{t: t, securePlane: startSecurePlaneWith(t, 20*time.Minute, func(p *securePlane) {
		p.addServer(serverIP, app.Listener.Addr())
		p.addClient(clientIP, serverIP)
		p.addClient(outsiderIP, serverIP)
		p.concerns = func(node, name string) bool {
			ip, _, _ := strings.Cut(name, "-")
			return strings.Contains(node, "~"+ip+"~")
		}
	})}
	soon := func(c *Config) {
		c.CA.GraceRatio = 0.9995 // of 20 min: after 0.6 s
		c.Workload.Annotations = map[string]string{"sidecar.istio.io/statsInclusionPrefixes": "cluster."}
	}
	c.server = startSidecar(t, serverIP, "", func(s *Config) { c.identify(s); soon(s) })
	c.client = startSidecar(t, clientIP, "", func(s *Config) { c.identify(s); soon(s) })
	c.ca.Change(func(s *catest.Settings) { s.IDs["Bearer outsider"] = "spiffe://cluster.local/ns/other/sa/default" })
	c.outsider = startSidecar(t, outsiderIP, "", func(s *Config) {
		c.identify(s)
		s.Workload.Namespace, s.CA.TokenFile = "other", filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(s.CA.TokenFile, []byte("outsider"), 0o600))
	})
	for _, s := range []*sidecar{c.server, c.client, c.outsider} {
		s.awaitPid(1)
	}
	c.kept = startCalls(t, "http://"+net.JoinHostPort(clientIP, fmt.Sprint(keptPort)), c.describe)
	c.fresh = startCalls(t, "http://"+net.JoinHostPort(clientIP, fmt.Sprint(freshPort)), c.describe)
	return c
}

// describe describes the certificates of both, for failures.
func (c *couple) describe() string {
	text := ""
	for name, s := range map[string]*sidecar{"client": c.client, "server": c.server} {
		leaves, roots := s.certs()
		text += fmt.Sprintf("\n  at %s %s: %+v, its Envoy: leaves %v, roots %v", time.Now().Format(time.TimeOnly), name, s.identity(), leaves, roots)
	}
	return text
}

// both waits for a condition of both sidecars.
func (c *couple) both(what string, ok func(*sidecar) bool) {
	c.t.Helper()
	for _, s := range []*sidecar{c.server, c.client} {
		s.await(what, func() bool { return ok(s) })
	}
}

// renewed waits until each Envoy has had more than that many certificates.
func (c *couple) renewed(more int) {
	c.t.Helper()
	for _, s := range []*sidecar{c.server, c.client} {
		seen := map[string]bool{}
		s.await("renewed certificates", func() bool {
			leaves, _ := s.certs()
			for serial := range leaves {
				seen[serial] = true
			}
			return len(seen) > more
		})
	}
}

// called waits for some more calls on both ports.
func (c *couple) called() {
	c.t.Helper()
	kept, fresh := c.kept.n.Load(), c.fresh.n.Load()
	c.client.await("calls", func() bool { return c.kept.n.Load() > kept+5 && c.fresh.n.Load() > fresh+5 })
}

// trusting replaces the roots, and waits until each Envoy has them.
func (c *couple) trusting(list ...*catest.Root) {
	c.t.Helper()
	c.ca.Change(func(s *catest.Settings) { s.Roots = list })
	text, want := "", map[string]bool{}
	for _, r := range list {
		text += string(r.PEM())
		want[r.Cert.SerialNumber.Text(16)] = true
	}
	require.NoError(c.t, os.WriteFile(c.roots+".new", []byte(text), 0o600))
	require.NoError(c.t, os.Rename(c.roots+".new", c.roots))
	c.both("the roots", func(s *sidecar) bool {
		_, roots := s.certs()
		return fmt.Sprint(roots) == fmt.Sprint(want)
	})
}

// TestRotationUnderLoad renews certificates, stops the CA, and replaces the mesh's root under calls between two sidecars.
// No call fails, the first connection lasts until the end, and the server refuses a client of another namespace.
func TestRotationUnderLoad(t *testing.T) {
	c := startCouple(t)
	c.called()
	c.renewed(3)
	c.called()

	c.ca.Change(func(s *catest.Settings) { s.Err = status.Error(codes.Unavailable, "unavailable") })
	c.both("failed renewals", func(s *sidecar) bool { return s.identity().Attempts >= 2 })
	c.called()
	c.ca.Change(func(s *catest.Settings) { s.Err = nil })
	c.both("a renewal after the CA's return", func(s *sidecar) bool { st := s.identity(); return st.Serial != "" && st.Problem == "" })

	next, err := catest.NewRoot("next")
	require.NoError(t, err)
	c.trusting(c.root, next)
	c.called()
	c.ca.Change(func(s *catest.Settings) { s.Signer = next })
	c.both("certificates of the new root in Envoy", func(s *sidecar) bool {
		st := s.identity()
		leaves, _ := s.certs()
		return st.Issuer == "CN=next" && len(leaves) == 1 && leaves[st.Serial]
	})
	c.called()
	c.trusting(next)
	c.called()

	c.kept.stop()
	c.fresh.stop()
	require.Empty(t, c.kept.failures)
	require.Empty(t, c.fresh.failures)
	code, _ := c.outsider.get(keptPort, "/")
	require.Equal(t, http.StatusServiceUnavailable, code, "the client of another namespace is refused")
	_, text := c.client.get(DefaultAdminPort, "/stats?filter="+c.client.ip+"-.*upstream_cx_(total|destroy)$")
	require.Contains(t, text, fmt.Sprintf("cluster.%s-%d.upstream_cx_destroy: 0\n", c.client.ip, keptPort), "no connection was closed")
	t.Logf("%d calls on kept connections, %d on fresh ones; %s", c.kept.n.Load(), c.fresh.n.Load(), strings.ReplaceAll(text, "\n", "; "))
}
