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

// Port has the settings of one address that serves xDS. The zero value is plain text without
// authentication.
type Port struct {
	TLS *tls.Config // nil: plain text
	// Methods are served in addition to those of Options, and override them.
	Methods map[string]Unary
	// Authorize decides whether a peer may be the proxy that its node describes, and adds what the
	// node lacks. Its errors are gRPC statuses. nil: every node is accepted.
	Authorize func(*Peer, *model.Proxy) error
}

// Peer is the other end of a stream or call.
type Peer struct {
	Address string
	// Certificates is the peer's verified chain, its own certificate first; nil: none.
	Certificates []*x509.Certificate
	// Authorization is the header of that name. Only calls of a Unary have it.
	Authorization string
}

type peerKey struct{}

// WithPeer returns the context of a call from p.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf returns the caller of a Unary from its context; never nil.
func PeerOf(ctx context.Context) *Peer {
	if p, ok := ctx.Value(peerKey{}).(*Peer); ok {
		return p
	}
	return &Peer{}
}

// grpcPeer returns the peer of a stream or call on grpc-go.
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

// http2Peer returns the peer of a stream or call on package http2.
func http2Peer(h *http2.Stream) *Peer {
	return &Peer{Address: h.Peer(), Certificates: h.PeerCertificates(), Authorization: h.Authorization()}
}
