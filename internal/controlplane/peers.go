package controlplane

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/drain"
	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Replicas configures how to find the other control planes of the mesh.
type Replicas struct {
	Addresses []string // host:port of their xDS, with TLS if this one has it
	// Service of the root namespace whose endpoints they are; empty: none. It is read from the
	// source.
	Service string
	// Every is the interval of liveness checks. After Patience a silent control plane is not waited for. 0:
	// the defaults of package peers.
	Every, Patience time.Duration
}

// Names of the ports for control planes, as Istio's Service has them.
const (
	securePortName = "https-dns"
	plainPortName  = "grpc-xds"
)

// DefaultPeerService is Istio's name of the control plane's Service.
const DefaultPeerService = "istiod"

// newPeers returns the list of peers. If none are configured, it still answers other control planes.
func (p *parts) newPeers() *peers.Peers {
	o := peers.Options{Listed: p.listedPeers, Own: p.ownAddress, Log: p.opts.Log, Every: p.opts.Replicas.Every, Patience: p.opts.Replicas.Patience}
	o.Failed = p.metrics.ControlPlanes(func() (known, answering, silent int) { return p.peers.Count() })
	if p.secure != nil {
		o.TLS = p.secure.authority.peerTLS(controlPlaneName(p.opts.Mesh.RootNamespace), p.secure.peerName)
	}
	return peers.New(o)
}

// ownAddress is this control plane's address for others.
func (p *parts) ownAddress() string {
	if p.secure != nil {
		return p.secure.listener.Addr().String()
	}
	return p.xdsListener.Addr().String()
}

// listedPeers returns the addresses of the flags and the Service's endpoints, ready or not: a control plane
// that ends or hangs still has proxies.
func (p *parts) listedPeers() []string {
	r := &p.opts.Replicas
	out := slices.Clone(r.Addresses)
	if r.Service == "" || p.opts.Kubernetes == nil {
		return out
	}
	name := plainPortName
	if p.secure != nil {
		name = securePortName
	}
	_, own, _ := net.SplitHostPort(p.ownAddress())
	return append(out, endpointsOf(p.pipeline.Snapshot(), model.Key{Namespace: p.opts.Mesh.RootNamespace, Name: r.Service}, name, own)...)
}

// configuredPeers returns the peers; nil: none are configured.
func (p *parts) configuredPeers() *peers.Peers {
	r := &p.opts.Replicas
	if len(r.Addresses) == 0 && (r.Service == "" || p.opts.Kubernetes == nil) {
		return nil
	}
	return p.peers
}

// endpointsOf returns the endpoints of a Service at a port, given by name or number.
func endpointsOf(snapshot *store.Snapshot, service model.Key, name, number string) []string {
	var out []string
	for o := range snapshot.All(model.KindEndpointSlice) {
		slice, ok := o.(*model.EndpointSlice)
		if !ok || slice.Namespace != service.Namespace || slice.Service != service.Name {
			continue
		}
		port := number
		for _, p := range slice.Ports {
			if p.Name == name {
				port = strconv.FormatUint(uint64(p.Number), 10)
			}
		}
		for i := range slice.Members {
			if a := slice.Members[i].Addresses; len(a) > 0 {
				out = append(out, net.JoinHostPort(a[0], port))
			}
		}
	}
	return out
}

// peerMethods are the methods between control planes.
func (p *parts) peerMethods() map[string]server.Unary {
	reporter := &status.Reporter{Snapshot: p.pipeline.Snapshot, Refusals: p.xds.Refusals, Explain: p.explainer.Object, Causes: p.explainer.Causes}
	queries := &debug.PeerQueries{Explain: p.explainer, Proxies: p.xds, Changes: p.changes, Traffic: p.traffic}
	if p.learning != nil {
		queries.Dependencies = p.learning.reports
	}
	out := queries.Methods()
	maps.Copy(out, map[string]server.Unary{
		status.MethodReport:      reporter.Report,
		peers.MethodHello:        p.peers.Hello,
		drain.MethodForward:      p.drains.Forwarded,
		drain.MethodDrainNotices: p.drains.DrainNotices,
		drain.MethodReturned:     p.drains.Returned,
	})
	return out
}

// plainMethods are the methods in plain text, where callers are not authenticated. If there is a port with
// TLS, peers call and workloads deregister only there.
func (p *parts) plainMethods() map[string]server.Unary {
	methods := p.peerMethods()
	if p.secure == nil {
		return methods
	}
	for path := range methods {
		methods[path] = onlyWithTLS("requests of control planes")
	}
	methods[agentapi.DeregisterMethod] = onlyWithTLS("deregistrations")
	return methods
}

// onlyPeers restricts methods to control planes.
func (s *secure) onlyPeers(methods map[string]server.Unary) map[string]server.Unary {
	out := map[string]server.Unary{}
	for path, method := range methods {
		out[path] = func(ctx context.Context, request []byte) ([]byte, error) {
			if err := s.mustBePeer(ctx); err != nil {
				return nil, err
			}
			return method(ctx, request)
		}
	}
	return out
}

// mustBePeer rejects callers that are not control planes of this mesh. Their certificates were verified
// when they connected.
func (s *secure) mustBePeer(ctx context.Context) error {
	p := server.PeerOf(ctx)
	if len(p.Certificates) == 0 {
		return server.Unauthenticated("only control planes may call this, and the caller has no certificate")
	}
	c := p.Certificates[0]
	if s.authority.Now().After(c.NotAfter) {
		return server.Unauthenticated("the caller's certificate has expired: connect again with a new one")
	}
	if s.authority.isPeer(c, s.trustDomains(), s.opts.Mesh.RootNamespace) {
		return nil
	}
	return server.Denied("only control planes may call this, and the caller's certificate is for %v", c.URIs)
}

// peerName is the DNS name of control planes among each other.
func (s *secure) peerName() string {
	return ca.PeerName(s.trustDomains()[0], s.opts.Mesh.RootNamespace)
}

// onlyWithTLS rejects in plain text what requires TLS.
func onlyWithTLS(what string) server.Unary {
	return func(context.Context, []byte) ([]byte, error) {
		return nil, server.Denied("%s: only with TLS (--xds-addr), not in plain text", what)
	}
}
