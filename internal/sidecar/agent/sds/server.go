// Package sds serves secrets to the workload's Envoy, over a Unix socket that only this user may open: "default", the
// certificate with its key; "ROOTCA", the roots that verify peers; and certificates in files that the configuration
// names (package certfile). The names are Istio's. The same socket serves Wasm modules.
package sds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
)

// Names of the secrets.
const (
	CertificateName = "default"
	RootsName       = "ROOTCA"
)

// maxPath is the longest path in a sockaddr_un, without its end mark.
const maxPath = 107

// Source has the secrets: identity.Renewer.
type Source interface {
	// Secrets returns the present secrets, and a channel that is closed when they change.
	Secrets() (*identity.Secrets, <-chan struct{})
}

// Server answers StreamSecrets. Each stream has two goroutines, which end with it.
type Server struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	source Source // nil: the workload has no identity
	files  *Files // nil: Envoy reads the files itself
	log    *slog.Logger
	grpc   *grpc.Server
	done   chan struct{}
}

// SocketPath returns the path of the socket in a work folder.
func SocketPath(workDir string) string { return filepath.Join(workDir, "sds", "socket") }

// Fits reports whether the path of a work folder's socket is short enough.
func Fits(workDir string) bool { return len(SocketPath(workDir)) <= maxPath }

// Start listens in a folder below workDir, and serves until Close. others register more services. source and files may
// be nil.
func Start(ctx context.Context, workDir string, source Source, files *Files, log *slog.Logger, others ...func(grpc.ServiceRegistrar)) (*Server, error) {
	l, err := listen(ctx, SocketPath(workDir))
	if err != nil {
		return nil, fmt.Errorf("cannot create the socket for Envoy: %w: correct --work-dir", err)
	}
	s := &Server{source: source, files: files, log: log, grpc: grpc.NewServer(), done: make(chan struct{})}
	if source != nil || files != nil {
		secretv3.RegisterSecretDiscoveryServiceServer(s.grpc, s)
	}
	for _, register := range others {
		register(s.grpc)
	}
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l) // ends with Close
	}()
	return s, nil
}

// listen creates a folder that only this user may open, which protects the socket before it has its mode.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("path of the socket %s: longer than %d characters", path, maxPath)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err // left by a killed agent
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close ends all streams and removes the socket.
func (s *Server) Close() {
	s.grpc.Stop()
	<-s.done
}
