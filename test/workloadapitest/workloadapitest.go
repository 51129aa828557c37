// Package workloadapitest is a SPIFFE Workload API for tests. It speaks the protocol of SPIRE's agent on a Unix socket.
package workloadapitest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Answer is what the API knows of the process that asks. Without an identity it refuses.
type Answer struct {
	Identities []*tls.Certificate             // each with one SPIFFE ID
	Bundles    map[string][]*x509.Certificate // by trust domain: those of the identities, and federated ones
}

// Server is a Workload API.
type Server struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	Address string // unix:///path

	mu      sync.Mutex // guards the fields below
	answer  Answer
	changed chan struct{} // closed and replaced by Set
}

// Run serves until the test ends.
func Run(t testing.TB, a Answer) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") // short: the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the system removes it in the end
	s, stop, err := Start(dir, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s
}

// Start serves on a socket in dir until stop.
func Start(dir string, a Answer) (s *Server, stop func(), err error) {
	path := filepath.Join(dir, "socket")
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, err
	}
	s = &Server{Address: "unix://" + path, answer: a, changed: make(chan struct{})}
	g := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(g, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l) // ends with stop
	}()
	return s, func() { g.Stop(); <-done }, nil
}

// Set replaces the answer, and sends it to all who ask.
func (s *Server) Set(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = a
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) get() (Answer, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer, s.changed
}

// FetchX509SVID implements the service.
func (s *Server) FetchX509SVID(_ *workload.X509SVIDRequest, out workload.SpiffeWorkloadAPI_FetchX509SVIDServer) error {
	// The header protects against requests that a browser can be made to send.
	if md, _ := metadata.FromIncomingContext(out.Context()); len(md.Get("workload.spiffe.io")) != 1 {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	for {
		a, changed := s.get()
		if len(a.Identities) == 0 {
			return status.Error(codes.PermissionDenied, "no identity issued")
		}
		response, err := a.encode()
		if err != nil {
			return err
		}
		if err := out.Send(response); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return nil
		}
	}
}

func (a Answer) encode() (*workload.X509SVIDResponse, error) {
	out := &workload.X509SVIDResponse{FederatedBundles: map[string][]byte{}}
	own := map[string]bool{}
	for _, c := range a.Identities {
		key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			return nil, err
		}
		id := c.Leaf.URIs[0]
		own[id.Host] = true
		out.Svids = append(out.Svids, &workload.X509SVID{
			SpiffeId: id.String(), X509Svid: bytes.Join(c.Certificate, nil), X509SvidKey: key, Bundle: join(a.Bundles[id.Host]),
		})
	}
	for domain, roots := range a.Bundles {
		if !own[domain] {
			out.FederatedBundles["spiffe://"+domain] = join(roots)
		}
	}
	return out, nil
}

func join(list []*x509.Certificate) []byte {
	var out []byte
	for _, c := range list {
		out = append(out, c.Raw...)
	}
	return out
}
