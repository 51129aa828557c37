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

// Method is Istio's unary method for certificates.
const Method = "/istio.v1.auth.IstioCertificateService/CreateCertificate"

// Bounds of requests.
const (
	// maxCall is the largest message, in bytes.
	maxCall = 2 * maxRequest
	// maxCalls bounds the concurrent requests; others wait.
	maxCalls = 64
	// callTimeout bounds a request, including its wait.
	callTimeout = 20 * time.Second
)

// Callers authenticates callers: *authn.Callers.
type Callers interface {
	// Authenticate returns the caller, or a gRPC status with the reason.
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
	slots     chan struct{} // holds one value for each running request
}

// NewService returns the service of an authority.
func NewService(a *Authority, c Callers, m Meter, log *slog.Logger) *Service {
	return &Service{authority: a, callers: c, meter: m, log: log, slots: make(chan struct{}, maxCalls)}
}

// CreateCertificate implements Method. The certificate has the identity of the caller; the name in the request is
// ignored.
func (s *Service) CreateCertificate(ctx context.Context, request []byte) ([]byte, error) {
	s.meter.Requested()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, server.Unavailable("too many concurrent requests for certificates: try again")
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
		s.log.Warn("certificate refused: the caller is unknown", "peer", peer.Address, "error", err)
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
		s.log.Warn("certificate refused", "for", caller.Identity.String(), "peer", peer.Address, "error", err)
		return nil, server.Invalid("%v", err)
	default:
		s.meter.Unsigned("CERT_GEN_ERROR") // Istio's value
		s.log.Error("cannot sign a certificate", "for", caller.Identity.String(), "error", err)
		return nil, server.Unavailable("%v", err)
	}
	s.meter.Issued()
	s.log.Info("certificate issued", "for", caller.Identity.String(), "by", caller.By, "peer", peer.Address,
		"serial", issued.Certificate.SerialNumber.Text(16), "expires", issued.Certificate.NotAfter.Format(time.RFC3339))
	return proto.Marshal(&securityv1alpha1.IstioCertificateResponse{CertChain: issued.Chain})
}

// impersonated is the metadata with which a proxy of a node requests certificates for other identities.
const impersonated = "ImpersonatedIdentity"

func decode(b []byte) (*securityv1alpha1.IstioCertificateRequest, error) {
	if len(b) > maxCall {
		return nil, server.Invalid("the request has %d bytes: the limit is %d", len(b), maxCall)
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
