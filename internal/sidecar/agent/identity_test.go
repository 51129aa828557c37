package agent

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/test/await"
)

const appID = "spiffe://cluster.local/ns/shop/sa/default"

// securePlane is a control plane with TLS. It has ADS, which requires a client certificate, and a CA.
type securePlane struct {
	*fakeADS
	ca           *catest.Server
	root         *catest.Root
	roots, token string      // files
	deregistered chan string // SPIFFE ids of workloads
}

func startSecurePlane(t *testing.T, life time.Duration) *securePlane {
	t.Helper()
	return startSecurePlaneWith(t, life, func(*securePlane) {})
}

// startSecurePlaneWith calls prepare, which adds resources, before the start.
func startSecurePlaneWith(t *testing.T, life time.Duration, prepare func(*securePlane)) *securePlane {
	t.Helper()
	root, err := catest.NewRoot("mesh")
	require.NoError(t, err)
	p := &securePlane{root: root, roots: filepath.Join(t.TempDir(), "roots.pem"), token: filepath.Join(t.TempDir(), "token"),
		fakeADS: &fakeADS{open: make(chan struct{}), versions: map[string]string{}, onlyPeers: "spiffe://cluster.local/ns/"}}
	p.resources = map[string][]*discoveryv3.Resource{}
	prepare(p)
	close(p.open)
	p.deregistered = make(chan string, 10)
	p.deregister = func(ctx context.Context, _ *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) {
		p.deregistered <- peerID(ctx)
		return &agentapi.DeregisterResponse{ACKed: 1}, nil
	}
	var stop func()
	p.ca, stop, err = catest.Start("127.0.0.1:0", catest.Settings{
		Signer: root, Roots: []*catest.Root{root}, IDs: map[string]string{"Bearer app-token": appID}, Life: life,
	}, func(s *grpc.Server) {
		discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, p.fakeADS)
		p.registerDeregister(s)
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	require.NoError(t, os.WriteFile(p.roots, root.PEM(), 0o600))
	require.NoError(t, os.WriteFile(p.token, []byte("app-token"), 0o600))
	return p
}

func (p *securePlane) identify(c *Config) {
	c.XDS = XDS{Address: p.ca.Address, RootCert: p.roots}
	c.CA.TokenFile = p.token
}

// peerID returns the SPIFFE id in the client certificate of a call.
func peerID(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return ""
	}
	return info.State.PeerCertificates[0].URIs[0].String()
}

// TestIdentity checks that Envoy starts without a certificate, is not ready, and connects once it has one.
func TestIdentity(t *testing.T) {
	p := startSecurePlane(t, time.Hour)
	require.NoError(t, os.Remove(p.token))
	work := t.TempDir()
	s := startSidecar(t, ownIP(), "", func(c *Config) { p.identify(c); c.LeaveTimeout, c.WorkDir = ptr(patience), work })
	s.await("Envoy to wait for the certificate", func() bool {
		status, body := s.get(DefaultHealthPort, "/healthz/ready")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "no certificate yet") && strings.Contains(body, "--token-file")
	})
	require.NoError(t, os.WriteFile(p.token, []byte("app-token"), 0o600))
	s.awaitPid(1)
	require.Equal(t, "true", p.seenNodes()[0].Metadata.Fields["SDS"].GetStringValue())

	_, body := s.get(DefaultStatusPort, "/debug/identity")
	var state identity.State
	require.NoError(t, json.Unmarshal([]byte(body), &state), body)
	require.Equal(t, appID, state.ID)
	_, dump := s.get(DefaultAdminPort, "/config_dump?resource=dynamic_active_secrets")
	require.NotContains(t, dump, "BEGIN PRIVATE", "the dump contains no key")
	requireNoKeys(t, work)
	_, metrics := s.get(DefaultStatusPort, "/metrics")
	require.Contains(t, metrics, `istio_agent_cert_expiry_seconds{resource_name="default"} 3`)

	s.cancel()
	require.NoError(t, s.ended())
	require.Equal(t, appID, await.From(t, p.deregistered), "it deregistered with its certificate")
}

// requireNoKeys checks that no file in a folder contains a private key.
func requireNoKeys(t *testing.T, dir string) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		require.NotContains(t, string(text), "PRIVATE KEY", path)
		return err
	}))
	require.Positive(t, files)
}

// TestRenewedCertificatesReachEnvoy checks that renewals do not end the stream to the control plane.
func TestRenewedCertificatesReachEnvoy(t *testing.T) {
	p := startSecurePlane(t, 4*time.Second)
	s := startSidecar(t, ownIP(), "", p.identify)
	s.awaitReady()
	serials := map[string]bool{}
	s.await("three certificates in Envoy", func() bool {
		leaves, _ := s.certs()
		maps.Copy(serials, leaves)
		return len(serials) >= 3
	})
	require.Len(t, p.seenNodes(), 1, "one stream")
	require.NotContains(t, s.log.String(), "level=ERROR")
}

// certs returns the serial numbers of Envoy's certificates and roots; none if Envoy does not answer.
func (s *sidecar) certs() (leaves, roots map[string]bool) {
	type list []struct {
		SerialNumber string `json:"serial_number"`
	}
	var certs struct {
		Certificates []struct {
			CACert    list `json:"ca_cert"`
			CertChain list `json:"cert_chain"`
		}
	}
	_, body := s.get(DefaultAdminPort, "/certs")
	_ = json.Unmarshal([]byte(body), &certs) // no answer: no certificates
	leaves, roots = map[string]bool{}, map[string]bool{}
	add := func(to map[string]bool, from list) {
		for _, c := range from {
			to[strings.TrimLeft(c.SerialNumber, "0")] = true // Envoy pads to whole bytes
		}
	}
	for _, c := range certs.Certificates {
		add(leaves, c.CertChain)
		add(roots, c.CACert)
	}
	return leaves, roots
}

// TestIdentityBesidePlaintext has a control plane without TLS, and certificates from another CA or from files.
func TestIdentityBesidePlaintext(t *testing.T) {
	p := startSecurePlane(t, time.Hour)
	ads := startADS(t, nil, nil, nil)
	close(ads.open)
	out := t.TempDir()
	first := startSidecar(t, ownIP(), ads.address, func(c *Config) {
		c.XDS.RootCert, c.CA = p.roots, CA{Address: p.ca.Address, TokenFile: p.token, OutputCerts: out}
	})
	first.awaitReady()
	first.await("the certificate", func() bool {
		_, body := first.get(DefaultStatusPort, "/debug/identity")
		return strings.Contains(body, appID)
	})
	second := startSidecar(t, ownIP(), ads.address, func(c *Config) { c.CA.MountedCerts = out })
	second.await("the same certificate", func() bool {
		_, body := second.get(DefaultStatusPort, "/debug/identity")
		return strings.Contains(body, appID) && strings.Contains(body, "folder "+out)
	})
	require.Len(t, p.ca.Calls(), 1)
	third := startSidecar(t, ownIP(), ads.address, nil)
	third.awaitReady()
	status, _ := third.get(DefaultStatusPort, "/debug/identity")
	require.Equal(t, http.StatusNotFound, status, "no identity")
}

func TestIdentitySettings(t *testing.T) {
	roots := filepath.Join(t.TempDir(), "roots")
	require.NoError(t, os.WriteFile(roots, nil, 0o600))
	base := func() Config {
		return Config{Workload: workload.Workload{Name: "a", IPs: []string{"127.0.0.1"}}, XDS: XDS{Plaintext: true, RootCert: roots}}
	}
	for _, tc := range []struct {
		change     func(*Config)
		identified bool
		ca         string
		err        string
	}{
		{func(*Config) {}, false, "", ""},
		{func(c *Config) { c.XDS.Plaintext = false }, true, DefaultXDSAddress, ""},
		{func(c *Config) { c.XDS.Plaintext, c.CA.Address = false, NoCA }, false, "", ""},
		{func(c *Config) { c.CA.Address = "ca:15012" }, true, "ca:15012", ""},
		{func(c *Config) { c.CA.MountedCerts = "/etc/certs" }, true, "", ""},
		{func(c *Config) { c.CA.Address = "ca" }, false, "", "--ca-address"},
		{func(c *Config) { c.CA.Address = ":1" }, false, "", "no host"},
		{func(c *Config) { c.CA.Address, c.XDS.RootCert = "ca:1", "" }, false, "", "--xds-root-cert"},
	} {
		c := base()
		tc.change(&c)
		s, err := c.resolve()
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.identified, s.identified)
		require.Equal(t, tc.ca, s.caAddress)
	}
	s := &settings{}
	require.Equal(t, []string{controlPlaneName, "10.0.0.1"}, s.serverNames("10.0.0.1"))
	require.Equal(t, []string{"cp.mesh"}, s.serverNames("cp.mesh"))
	require.Equal(t, []string{controlPlaneName}, s.serverNames(""))
}

// refuse returns an error for a client without an accepted certificate.
func (f *fakeADS) refuse(ctx context.Context) error {
	if id := peerID(ctx); !strings.HasPrefix(id, f.onlyPeers) {
		return status.Error(codes.PermissionDenied, "not "+f.onlyPeers)
	}
	return nil
}
