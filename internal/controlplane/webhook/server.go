package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/connlimit"
	"github.com/moonsail/moonsail/internal/base/httpserve"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// Options configure the webhooks. Without certificate files, a certificate is made here.
type Options struct {
	Addr     string // empty: the webhooks are off
	CertFile string
	KeyFile  string
	// ClientCA is a file with the CAs of the API server's client certificates; empty: it needs none.
	ClientCA string
	// Config is the ValidatingWebhookConfiguration that gets the certificate which is made here; empty:
	// none.
	Config string
	// InjectConfig is the MutatingWebhookConfiguration that gets it.
	InjectConfig string
	Inject       *inject.Config // nil: no injection
	Revision     string         // of the control plane: the webhooks of its tags get the certificate, too; empty: it has none
	// Names are the names in the certificate if there is no Config.
	Names []string
	// CountInjection counts the answers of the webhook that injects sidecars.
	CountInjection func(result string)
	Trust          *Trust // trust in the configurations; nil: not tracked
}

// Server serves the webhook.
type Server struct {
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	bundles     []*caBundle
	tags        *tagBundles // nil: there are none
	clientCA    string      // see Options.ClientCA
	handler     http.Handler
	log         *slog.Logger
}

// NewServer reads or makes the certificate. Only a Config needs client.
func NewServer(o Options, h *Handler, client *kube.Client) (*Server, error) {
	s := &Server{handler: h, log: h.Log}
	if o.Inject != nil {
		s.handler = Routes(h, &Injector{Config: o.Inject, ProxyConfigs: h.proxyConfigs, Count: o.CountInjection, Log: h.Log})
	}
	s.handler = limited(s.handler, newLimiter(), func() { h.Count(resultLimited) })
	s.clientCA = o.ClientCA
	if _, err := s.tlsConfig(); err != nil {
		return nil, err
	}
	if o.CertFile != "" {
		f := &files{cert: o.CertFile, key: o.KeyFile}
		s.certificate = f.certificate
		if _, err := f.certificate(nil); err != nil {
			return nil, fmt.Errorf("certificate of the webhook: %w", err)
		}
		return s, nil
	}
	a, err := newAuthority(time.Now())
	if err != nil {
		return nil, err
	}
	if err := a.issue(o.Names, time.Now()); err != nil {
		return nil, err
	}
	s.certificate = a.certificate
	for _, b := range []caBundle{{name: o.Config, kind: validating}, {name: o.InjectConfig, kind: mutating}} {
		if b.name != "" {
			b.authority, b.client, b.log, b.trust = a, client, h.Log, o.Trust
			s.bundles = append(s.bundles, &b)
		}
	}
	if o.InjectConfig != "" && o.Revision != "" {
		s.tags = &tagBundles{like: s.bundles[len(s.bundles)-1], revision: o.Revision}
	}
	return s, nil
}

// Bounds of one request.
const (
	requestTimeout = 20 * time.Second
	idleTimeout    = 2 * time.Minute
	shutdownWithin = 5 * time.Second
)

// Serve serves until ctx ends, and finishes requests in progress.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := s.keep(ctx, cancel)
	err := s.answer(ctx, cancel, ln)
	return cmp.Or(err, ended())
}

// keep keeps the certificate in the configurations until ctx ends. A failure cancels the server. ended
// waits for the end, and returns the failure.
func (s *Server) keep(ctx context.Context, cancel context.CancelFunc) (ended func() error) {
	var keeping sync.WaitGroup
	failed := make(chan error, len(s.bundles)+1)
	if s.tags != nil {
		keeping.Go(func() {
			if err := s.tags.run(ctx); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	for _, b := range s.bundles {
		keeping.Go(func() {
			if err := b.run(ctx); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	return func() error {
		keeping.Wait()
		close(failed)
		return <-failed // the first error, if any
	}
}

// answer is Serve without the bundles, which end with it.
func (s *Server) answer(ctx context.Context, cancel context.CancelFunc, ln net.Listener) error {
	config, err := s.tlsConfig()
	if err != nil {
		return err
	}
	ln = connlimit.Listen(ln, connlimit.Limits{All: maxConns, OfAddress: maxConnsOfClient})
	server := &http.Server{
		Handler:     s.handler,
		TLSConfig:   config,
		ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	defer cancel()
	return httpserve.Serve(ctx, server, ln, shutdownWithin)
}

// tlsConfig returns the configuration of connections. With a ClientCA, only the API server's certificate is accepted.
func (s *Server) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate}
	if s.clientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(s.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--webhook-client-ca %s: no certificate found", s.clientCA)
	}
	return c, nil
}
