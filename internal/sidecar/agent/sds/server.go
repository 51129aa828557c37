// Package sds serves a workload's secrets to its Envoy, and what else the agent has for it, over a
// Unix socket that only this user may open: "default", the certificate with its key, and "ROOTCA", what peers are
// checked by; and the certificates in files that configuration names (package certfile). These are Istio's names.
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

// maxPath is what fits into a sockaddr_un, with its end.
const maxPath = 107

// Source has the secrets: identity.Keeper.
type Source interface {
	// Secrets are the present ones, and a channel that is closed when there are others.
	Secrets() (*identity.Secrets, <-chan struct{})
}

// Server answers StreamSecrets. Each stream has two goroutines, which end with it.
type Server struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	source Source // nil: the workload has no identity
	files  *Files // nil: Envoy reads files itself
	log    *slog.Logger
	grpc   *grpc.Server
	done   chan struct{}
}

// SocketPath is where the server of a work folder listens.
func SocketPath(workDir string) string { return filepath.Join(workDir, "sds", "socket") }

// Fits tells whether the socket of a work folder has a path that Envoy can open.
func Fits(workDir string) bool { return len(SocketPath(workDir)) <= maxPath }

// Start listens in a folder of its own below workDir, and serves until Close, and what others
// offer Envoy, too. source and files may be nil.
func Start(ctx context.Context, workDir string, source Source, files *Files, log *slog.Logger, others ...func(grpc.ServiceRegistrar)) (*Server, error) {
	l, err := listen(ctx, SocketPath(workDir))
	if err != nil {
		return nil, fmt.Errorf("no place to serve certificates and plugins to Envoy: %w: correct --work-dir", err)
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

// listen: nobody else can open the folder, so that the socket is nobody else's even before
// it has its mode.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("the socket's path %s is longer than the %d characters that there may be", path, maxPath)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err // of an agent that was killed
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
