package ca

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"
	securityv1alpha1 "istio.io/api/security/v1alpha1"

	"github.com/moonsail/moonsail/internal/security/authn"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Method is Istio's method for certificates. It is unary.
const Method = "/istio.v1.auth.IstioCertificateService/CreateCertificate"

// Bounds.
const (
	// maxCall is the largest message with a request, in bytes.
	maxCall = 2 * maxRequest
	// maxCalls is how many requests are worked on at the same time; others wait.
	maxCalls = 64
	// callTimeout bounds one, with the time that it waits.
	callTimeout = 20 * time.Second
)

// Callers tells who calls; *authn.Callers.
type Callers interface {
	// Authenticate gives the caller, or a gRPC status that says why it is not known.
	Authenticate(ctx context.Context, p *server.Peer) (authn.Caller, error)
}

// Meter counts requests for certificates; *changelog.CAMetrics.
type Meter interface {
	Requested()
	Unauthenticated()
	Unreadable()
	Unsigned(reason string)
	Issued()
}

// Service answers requests for certificates.
type Service struct {
	authority *Authority
	callers   Callers
	meter     Meter
	log       *slog.Logger
	slots     chan struct{} // holds one for each that is worked on
}

// NewService makes a service of an authority.
func NewService(a *Authority, c Callers, m Meter, log *slog.Logger) *Service {
	return &Service{authority: a, callers: c, meter: m, log: log, slots: make(chan struct{}, maxCalls)}
}

// CreateCertificate is the Method. The certificate is for whoever calls: what the request
// wants to be called is not looked at.
func (s *Service) CreateCertificate(ctx context.Context, request []byte) ([]byte, error) {
	s.meter.Requested()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, server.Unavailable("too many certificates are asked for at the same time; try again")
	}
	q, err := decode(request)
	if err != nil {
		s.meter.Unreadable()
		return nil, err
	}
	peer := server.PeerOf(ctx)
	caller, err := s.callers.Authenticate(ctx, peer)
	if err != nil {
		s.meter.Unauthenticated()
		s.log.Warn("a certificate was refused: it is not known who asks", "peer", peer.Address, "error", err)
		return nil, err
	}
	return s.issue(peer, caller, q)
}

func (s *Service) issue(peer *server.Peer, caller authn.Caller, q *securityv1alpha1.IstioCertificateRequest) ([]byte, error) {
	issued, err := s.authority.Issue(q.Csr, caller.Identity, q.ValidityDuration)
	switch {
	case err == nil:
	case isRequest(err):
		s.meter.Unreadable()
		s.log.Warn("a certificate was refused", "for", caller.Identity.String(), "peer", peer.Address, "error", err)
		return nil, server.Invalid("%v", err)
	default:
		s.meter.Unsigned("CERT_GEN_ERROR") // Istio's word
		s.log.Error("a certificate could not be signed", "for", caller.Identity.String(), "error", err)
		return nil, server.Unavailable("%v", err)
	}
	s.meter.Issued()
	s.log.Info("certificate issued", "for", caller.Identity.String(), "by", caller.By, "peer", peer.Address,
		"serial", issued.Certificate.SerialNumber.Text(16), "expires", issued.Certificate.NotAfter.Format(time.RFC3339))
	return proto.Marshal(&securityv1alpha1.IstioCertificateResponse{CertChain: issued.Chain})
}

// impersonated is the request's metadata by which a node's proxy asks for others.
const impersonated = "ImpersonatedIdentity"

func decode(b []byte) (*securityv1alpha1.IstioCertificateRequest, error) {
	if len(b) > maxCall {
		return nil, server.Invalid("the request has %d bytes; %d is the limit", len(b), maxCall)
	}
	q := &securityv1alpha1.IstioCertificateRequest{}
	if err := proto.Unmarshal(b, q); err != nil {
		return nil, server.Invalid("not an IstioCertificateRequest: %v", err)
	}
	if v := q.Metadata.GetFields()[impersonated].GetStringValue(); v != "" {
		return nil, server.Denied("metadata.%s: a caller cannot get a certificate for another identity (%q)", impersonated, v)
	}
	return q, nil
}
