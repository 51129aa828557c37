package controlplane

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/base/connlimit"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/authn"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Identity configures certificates for workloads, and the port that serves configuration with TLS.
type Identity struct {
	Addr      string        // address of xDS and the certificate authority with TLS; empty: not served
	Names     []string      // further names of the control plane
	CADir     string        // directory of the signing key; empty: Secrets of the cluster
	TokenFile string        // file of tokens; empty: none
	TTL       time.Duration // lifetime of certificates; 0: ca.DefaultTTL
	MaxTTL    time.Duration // 0: ca.DefaultMaxTTL
	// External is the source of the control plane's certificate and the mesh's roots if another authority issues the
	// mesh's certificates. The zero value: the control plane is the authority.
	External  ExternalAuthority
	ReadEvery time.Duration // interval of reading the authority's store; 0: ca.ReadEvery
	// Listening is called with the address once it is open; nil: not called.
	Listening func(net.Addr)
}

// ExternalAuthority is three files, or the address of a SPIFFE Workload API.
type ExternalAuthority struct {
	CertFile, KeyFile, RootFile string
	WorkloadAPI                 string // "unix:///path"
}

// secure is the control plane's port with TLS.
type secure struct {
	opts      Options
	listener  net.Listener
	authority authority
	callers   *authn.Callers
	service   *ca.Service  // nil: another authority issues certificates
	client    *kube.Client // nil: the source is not Kubernetes
	snapshot  func() *store.Snapshot
	loaded    <-chan struct{} // closed when the configuration was read

	unauthenticated *connlimit.Counter // connections of peers that have not shown a certificate
}

// Bounds of connections that are not authenticated. Workloads need one for each certificate, for less than a second.
const (
	maxUnauthenticated          = 8192
	maxUnauthenticatedOfAddress = 512 // gateways between networks have one address for many workloads
)

// addSecure opens the port with TLS and the authority, if they are on.
func (p *parts) addSecure(ctx context.Context) (err error) {
	p.secure, err = newSecure(ctx, p.opts, p.source, p.metrics, p.pipeline)
	return err
}

// newSecure opens the address and the authority; nil if they are off.
func newSecure(ctx context.Context, o Options, s *source, m *changelog.Metrics, pipeline *engine.Engine) (*secure, error) {
	if o.Identity.Addr == "" {
		return nil, nil
	}
	out := &secure{opts: o, client: s.client, snapshot: pipeline.Snapshot, loaded: pipeline.Loaded(), unauthenticated: connlimit.New(connlimit.Limits{
		All: maxUnauthenticated, OfAddress: maxUnauthenticatedOfAddress, ExemptLoopback: true, Refused: m.ConnectionRefused,
	})}
	m.Gauge("moonsail_unauthenticated_connections", "Connections at the port with TLS whose peer has not shown a certificate of the mesh.",
		func() float64 { return float64(out.unauthenticated.Open()) })
	tokens, err := out.tokens()
	if err != nil {
		return nil, err
	}
	if out.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", o.Identity.Addr); err != nil {
		return nil, fmt.Errorf("--xds-addr: %w", err)
	}
	if out.authority, err = out.openAuthority(ctx); err != nil {
		out.listener.Close()
		return nil, err
	}
	out.callers = &authn.Callers{TrustDomains: out.loadedTrustDomains, Roots: out.authority.Pool, Revoked: out.authority.Revoked, Tokens: tokens}
	meter := m.CertificateAuthority(out.authority.RootExpiry, out.authority.ChainExpiry)
	m.Gauge("moonsail_revocation_lists_expiry_timestamp_seconds",
		"Unix time at which the first list of revoked certificates expires. After that Envoys refuse every certificate. 0: no lists are known.",
		func() float64 {
			if at := out.authority.Revoked().Expiry(); !at.IsZero() {
				return float64(at.Unix())
			}
			return 0
		})
	if own, ok := out.authority.(ownAuthority); ok {
		out.service = ca.NewService(own.Authority, out.callers, meter, o.Log)
	}
	return out, nil
}

// tokens returns the verifiers of callers' tokens.
func (s *secure) tokens() (out []authn.Tokens, err error) {
	if path := s.opts.Identity.TokenFile; path != "" {
		f, err := authn.OpenTokenFile(path, s.opts.Log)
		if err != nil {
			return nil, fmt.Errorf("--token-auth-file: %w", err)
		}
		out = append(out, f)
	}
	if s.client == nil {
		return out, nil
	}
	ask, err := s.client.TokenReviews()
	if err != nil {
		return nil, err
	}
	return append(out, authn.NewKubernetesTokens(func(ctx context.Context, token, audience string) (authn.Review, error) {
		r, err := ask(ctx, token, audience)
		return authn.Review(r), err
	})), nil
}

// mesh returns the current configuration of the mesh.
func (s *secure) mesh() *model.Mesh {
	key := model.Key{Kind: model.KindMeshConfig, Namespace: s.opts.Mesh.RootNamespace, Name: model.MeshConfigName}
	config, _ := s.snapshot().Get(key).(*model.MeshConfig)
	return config.Over(s.opts.Mesh)
}

func (s *secure) trustDomains() []string { return s.mesh().TrustDomains() }

// loadedTrustDomains waits until the configuration was read: before that the trust domains are unknown, and certificates
// would name the default one.
func (s *secure) loadedTrustDomains(ctx context.Context) ([]string, error) {
	select {
	case <-s.loaded:
		return s.trustDomains(), nil
	case <-ctx.Done():
		return nil, server.Unavailable("the control plane has not read its configuration yet: try again")
	}
}

// names returns the DNS names of the control plane: Istio's and its own.
func (s *secure) names() []string {
	out := []string{"localhost", "127.0.0.1", "::1"}
	for _, service := range []string{"istiod", "moonsail"} {
		full := service + "." + s.opts.Mesh.RootNamespace
		out = append(out, full, full+".svc", full+".svc."+s.opts.Mesh.Domain)
	}
	for _, n := range s.opts.Identity.Names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// port returns the services of the port with TLS.
func (s *secure) port(p *parts) server.Port {
	methods := s.onlyPeers(p.peerMethods())
	if s.service != nil {
		methods[ca.Method] = s.service.CreateCertificate
	}
	methods[agentapi.DeregisterMethod] = p.drains.DeregisterIf(s.mayDeregister)
	return server.Port{TLS: s.authority.serverTLS(s.names()), Authorize: s.authorize, Methods: methods, Admit: s.unauthenticated.Enter,
		Questions: p.questions(s.maySeeAll)}
}

// close closes the port if it is not served.
func (s *secure) close() {
	if s != nil {
		s.listener.Close()
	}
}

// writeRoots keeps the roots in ConfigMaps of the namespaces.
func (p *parts) writeRoots(ctx context.Context) error {
	s := p.secure
	roots := &kube.RootCerts{
		Client: s.client, Trust: s.authority.Trust, Log: s.opts.Log,
		Namespaces: func() ([]string, bool) { return s.namespaces(), p.pipeline.Synced() },
	}
	return roots.Run(ctx)
}

// withoutRoots are Kubernetes' own namespaces, which have no workloads. Istio has the same list.
var withoutRoots = []string{"kube-public", "kube-node-lease", "local-path-storage"}

// namespaces returns the namespaces that get the mesh's roots: all that belong to the mesh.
func (s *secure) namespaces() []string {
	snapshot := s.snapshot()
	var out []string
	for o := range snapshot.All(model.KindNamespace) {
		name := o.Metadata().Key.Name
		if snapshot.InMesh(name, s.opts.Mesh.RootNamespace) && !slices.Contains(withoutRoots, name) {
			out = append(out, name)
		}
	}
	return out
}
