package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/http2"
)

// Port is how the service is offered at one address. The zero value is plain text, where
// everybody is believed.
type Port struct {
	TLS *tls.Config // nil: in plain text
	// Methods are served in addition to those of Options; of one path, this one counts.
	Methods map[string]Unary
	// Authorize decides whether a peer may be the proxy that its node says, and completes
	// what the node does not say. Its errors are gRPC's statuses. nil: everybody is believed.
	Authorize func(*Peer, *model.Proxy) error
}

// Peer is who is at the other end of a stream or call.
type Peer struct {
	Address string
	// Certificates are those that it has shown, its own first, verified when it connected;
	// nil: it has shown none.
	Certificates []*x509.Certificate
	// Authorization is the header of that name; of calls of a Unary only.
	Authorization string
}

type peerKey struct{}

// WithPeer is a context of a call from p.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf is whom a Unary is called by, from its context; never nil.
func PeerOf(ctx context.Context) *Peer {
	if p, ok := ctx.Value(peerKey{}).(*Peer); ok {
		return p
	}
	return &Peer{}
}

// grpcPeer is the peer of a stream or call on grpc-go.
func grpcPeer(ctx context.Context) *Peer {
	out := &Peer{}
	if p, ok := peer.FromContext(ctx); ok {
		out.Address = p.Addr.String()
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			out.Certificates = t.State.PeerCertificates
		}
	}
	if v := metadata.ValueFromIncomingContext(ctx, "authorization"); len(v) > 0 {
		out.Authorization = v[len(v)-1]
	}
	return out
}

// http2Peer is that on package http2.
func http2Peer(h *http2.Stream) *Peer {
	return &Peer{Address: h.Peer(), Certificates: h.PeerCertificates(), Authorization: h.Authorization()}
}
