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

// Replicas says where the other control planes of the mesh are.
type Replicas struct {
	Addresses []string // host:port of their xDS: with TLS, where this one has it
	// Service of the root namespace whose endpoints they are; empty: none. It is read from the
	// source.
	Service string
	// Every is how often it is looked who lives, and Patience how long one may be silent until
	// nobody waits for it; 0: those of package peers.
	Every, Patience time.Duration
}

// Names of the ports at which control planes are asked, as Istio's Service has them.
const (
	securePortName = "https-dns"
	plainPortName  = "grpc-xds"
)

// DefaultPeerService is Istio's name of the control plane's Service.
const DefaultPeerService = "istiod"

// newPeers makes what knows the others. Where none are listed it answers those who ask.
func (p *parts) newPeers() *peers.Peers {
	o := peers.Options{Listed: p.listedPeers, Own: p.ownAddress, Log: p.opts.Log, Every: p.opts.Replicas.Every, Patience: p.opts.Replicas.Patience}
	o.Failed = p.metrics.ControlPlanes(func() (known, answering, silent int) { return p.peers.Count() })
	if p.secure != nil {
		o.TLS = p.secure.authority.Peering("istiod."+p.opts.Mesh.RootNamespace+".svc", p.secure.peerName).TLS
	}
	return peers.New(o)
}

// ownAddress is where this one is asked itself.
func (p *parts) ownAddress() string {
	if p.secure != nil {
		return p.secure.listener.Addr().String()
	}
	return p.xdsListener.Addr().String()
}

// listedPeers are those of the flags, and the Service's endpoints, ready or not: who ends or
// hangs has proxies still.
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

// others are the peers; nil where there can be none.
func (p *parts) others() *peers.Peers {
	r := &p.opts.Replicas
	if len(r.Addresses) == 0 && (r.Service == "" || p.opts.Kubernetes == nil) {
		return nil
	}
	return p.peers
}

// endpointsOf are those of a Service at a port: the one of that name, else a number.
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

// peerMethods are what control planes can ask one another.
func (p *parts) peerMethods() map[string]server.Unary {
	reporter := &status.Reporter{Snapshot: p.pipeline.Snapshot, Refusals: p.xds.Refusals, Explain: p.explainer.Object, Causes: p.explainer.Causes}
	teller := &debug.PeerQueries{Explain: p.explainer, Proxies: p.xds, Changes: p.changes}
	out := teller.Methods()
	maps.Copy(out, map[string]server.Unary{
		status.MethodReport:      reporter.Report,
		peers.MethodHello:        p.peers.Hello,
		drain.MethodForward:      p.drains.Forwarded,
		drain.MethodDrainNotices: p.drains.DrainNotices,
		drain.MethodReturned:     p.drains.Returned,
	})
	return out
}

// plainMethods are those in plain text: whoever reaches that port is believed. Where there is
// a port with TLS, control planes ask there, and workloads leave: else anybody could have all of them do.
func (p *parts) plainMethods() map[string]server.Unary {
	methods := p.peerMethods()
	if p.secure == nil {
		return methods
	}
	for path := range methods {
		methods[path] = withTLS("control planes are answered")
	}
	methods[agentapi.DeregisterMethod] = withTLS("workloads leave")
	return methods
}

// onlyPeers has methods answer to control planes alone.
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

// mustBePeer refuses callers that are no control planes of this mesh. Their certificates were
// verified when they connected.
func (s *secure) mustBePeer(ctx context.Context) error {
	p := server.PeerOf(ctx)
	if len(p.Certificates) == 0 {
		return server.Unauthenticated("control planes alone may ask this, and the caller has shown no certificate")
	}
	c := p.Certificates[0]
	if s.authority.Now().After(c.NotAfter) {
		return server.Unauthenticated("the caller's certificate has expired: connect again with a new one")
	}
	for _, domain := range s.trustDomains() {
		if ca.IsPeer(c, ca.PeerName(domain, s.opts.Mesh.RootNamespace)) {
			return nil
		}
	}
	return server.Denied("control planes alone may ask this, and the caller's certificate is for %v", c.URIs)
}

// peerName is this control plane's, among others.
func (s *secure) peerName() string {
	return ca.PeerName(s.trustDomains()[0], s.opts.Mesh.RootNamespace)
}

// withTLS refuses in plain text what is done with TLS.
func withTLS(what string) server.Unary {
	return func(context.Context, []byte) ([]byte, error) {
		return nil, server.Denied("%s with TLS alone (--xds-addr), not in plain text", what)
	}
}
