package catest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	caapi "istio.io/api/security/v1alpha1"
)

// ControlPlaneName is a name in the server's certificate.
const ControlPlaneName = "istiod.istio-system.svc"

// Call is the credentials of one request.
type Call struct {
	Token string // "": none
	Peer  string // SPIFFE id of the client's certificate
	CSR   *x509.CertificateRequest
	TTL   time.Duration
}

// Server issues certificates. Tests set its settings with Change.
type Server struct {
	caapi.UnimplementedIstioCertificateServiceServer
	Address string

	mu       sync.Mutex // guards the fields below
	settings Settings
	calls    []Call
}

// Settings determine the answers of a Server.
type Settings struct {
	Signer *Root
	Roots  []*Root           // sent with each answer; they also verify clients
	Broken string            // roots that cannot be read, sent before the others
	IDs    map[string]string // SPIFFE id by Authorization header
	Life   time.Duration     // lifetime of certificates
	Err    error             // the answer, if set
	Answer []string          // the answer, if set
}

// Start serves on loopback until stop. The first signer signs the server's certificate.
func Start(address string, s Settings, register ...func(*grpc.Server)) (server *Server, stop func(), err error) {
	server = &Server{settings: s}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	server.Address = l.Addr().String()
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12,
		// For each connection, because roots change.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server.tls() },
	})))
	caapi.RegisterIstioCertificateServiceServer(g, server)
	for _, r := range register {
		r(g)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l)
	}()
	return server, func() { g.Stop(); <-done }, nil
}

func (s *Server) tls() (*tls.Config, error) {
	now := s.get()
	pair, err := now.Signer.Pair(time.Hour, nil, []string{ControlPlaneName})
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, r := range now.Roots {
		pool.AddCert(r.Cert)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}, NextProtos: []string{"h2"},
		ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}, nil
}

func (s *Server) get() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

// Change changes the settings.
func (s *Server) Change(change func(*Settings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.settings)
}

// Calls returns all requests.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// CreateCertificate implements the service.
func (s *Server) CreateCertificate(ctx context.Context, req *caapi.IstioCertificateRequest) (*caapi.IstioCertificateResponse, error) {
	call := Call{TTL: time.Duration(req.GetValidityDuration()) * time.Second, Peer: peerID(ctx)}
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("authorization")) == 1 {
		call.Token = md.Get("authorization")[0]
	}
	block, _ := pem.Decode([]byte(req.GetCsr()))
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "no CSR")
	}
	var err error
	if call.CSR, err = x509.ParseCertificateRequest(block.Bytes); err != nil || call.CSR.CheckSignature() != nil {
		return nil, status.Error(codes.InvalidArgument, "bad CSR")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	return s.settings.answer(call)
}

func (s *Settings) answer(call Call) (*caapi.IstioCertificateResponse, error) {
	switch {
	case s.Err != nil:
		return nil, s.Err
	case s.Answer != nil:
		return &caapi.IstioCertificateResponse{CertChain: s.Answer}, nil
	}
	id := s.IDs[call.Token]
	if call.Token == "" {
		id = call.Peer
	}
	if id == "" {
		return nil, status.Error(codes.Unauthenticated, "unknown credentials")
	}
	cert, err := s.Signer.Sign(call.CSR.PublicKey, s.Life, []string{id}, nil)
	if err != nil {
		return nil, err
	}
	roots := s.Broken
	for _, r := range s.Roots {
		roots += string(r.PEM())
	}
	return &caapi.IstioCertificateResponse{CertChain: []string{string(cert), roots}}, nil
}

func peerID(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 || len(info.State.PeerCertificates[0].URIs) == 0 {
		return ""
	}
	return info.State.PeerCertificates[0].URIs[0].String()
}
