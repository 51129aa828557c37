package authn

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/revocation"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Caller is an authenticated caller.
type Caller struct {
	Identity model.Identity
	By       string // what identified the caller: "certificate", "Kubernetes token", "token file"
}

// Tokens authenticates tokens of one kind.
type Tokens interface {
	// Kind names its tokens in messages.
	Kind() string
	// Holder returns the namespace and service account of a token. ErrUnknown means that the token is not of this kind.
	// A Refusal means that it is, and is not accepted. With any other error the holder could not be determined.
	Holder(ctx context.Context, token string) (namespace, serviceAccount string, err error)
}

// ErrUnknown means that a token is not known.
var ErrUnknown = errors.New("the token is not known")

// Refusal is the reason why a token is not accepted.
type Refusal struct{ Text string }

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Callers authenticates callers and authorizes proxies.
type Callers struct {
	// TrustDomains returns the trust domains of the mesh: first the one of new identities, then former and shared ones. It
	// waits until they are known, and returns the status of a call for which they are not in time.
	TrustDomains func(ctx context.Context) ([]string, error)
	Roots        func() *x509.CertPool    // verify client certificates
	Revoked      func() *revocation.Lists // nil: nothing is revoked
	Tokens       []Tokens                 // tried in this order
	Now          func() time.Time         // nil: time.Now
}

// Authenticate returns the caller of a certificate, else of a token. Errors are gRPC statuses.
func (c *Callers) Authenticate(ctx context.Context, p *server.Peer) (Caller, error) {
	domains, err := c.TrustDomains(ctx)
	if err != nil {
		return Caller{}, err
	}
	if len(p.Certificates) > 0 {
		id, err := c.fromCertificate(p.Certificates, domains)
		if err == nil {
			id.TrustDomain = domains[0]
			return Caller{id, "certificate"}, nil
		}
		if p.Authorization == "" {
			return Caller{}, server.Unauthenticated("the client's certificate: %v", err)
		}
	}
	token, err := bearer(p.Authorization)
	if err != nil {
		return Caller{}, server.Unauthenticated("%v", err)
	}
	return c.fromToken(ctx, token, domains[0])
}

// fromCertificate verifies a certificate at the present time: the connection may be old, and the roots may have
// changed.
func (c *Callers) fromCertificate(chain []*x509.Certificate, domains []string) (model.Identity, error) {
	between := x509.NewCertPool()
	for _, i := range chain[1:] {
		between.AddCert(i)
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.Roots(), Intermediates: between, CurrentTime: c.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil && c.Revoked != nil {
		err = c.Revoked().Check(chains)
	}
	if err != nil {
		return model.Identity{}, err
	}
	return identity(chain[0], domains)
}

// identity returns the identity in a verified certificate, which must be of one of the trust domains.
func identity(cert *x509.Certificate, domains []string) (model.Identity, error) {
	if len(cert.URIs) != 1 {
		return model.Identity{}, fmt.Errorf("%d URI names: exactly one SPIFFE id is required", len(cert.URIs))
	}
	id, err := model.ParseIdentity(cert.URIs[0].String())
	if err != nil {
		return model.Identity{}, err
	}
	if !slices.Contains(domains, id.TrustDomain) {
		return model.Identity{}, fmt.Errorf("%s is not in the mesh's trust domains (%s)", id, strings.Join(domains, ", "))
	}
	return id, nil
}

func (c *Callers) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// bearer returns the token of an authorization header.
func bearer(header string) (string, error) {
	const scheme = "bearer "
	token := ""
	if len(header) > len(scheme) && strings.EqualFold(header[:len(scheme)], scheme) {
		token = strings.TrimSpace(header[len(scheme):])
	}
	switch {
	case header == "":
		return "", errors.New("the caller has neither a certificate nor a token (metadata authorization: Bearer <token>)")
	case token == "":
		return "", errors.New(`the metadata "authorization" is not "Bearer <token>"`)
	case len(token) > maxToken:
		return "", fmt.Errorf("the token has %d bytes: the limit is %d", len(token), maxToken)
	}
	return token, nil
}

func (c *Callers) fromToken(ctx context.Context, token, trustDomain string) (Caller, error) {
	for _, t := range c.Tokens {
		ns, account, err := t.Holder(ctx, token)
		var refused *Refusal
		switch {
		case errors.Is(err, ErrUnknown):
			continue
		case errors.As(err, &refused):
			return Caller{}, server.Unauthenticated("the token is not accepted: %s", refused.Text)
		case err != nil:
			return Caller{}, server.Unavailable("the token cannot be checked now: %v", err)
		}
		id := model.Identity{TrustDomain: trustDomain, Namespace: ns, ServiceAccount: account}
		if err := id.Check(); err != nil {
			return Caller{}, server.Unauthenticated("the token is not accepted: %v", err)
		}
		return Caller{id, t.Kind()}, nil
	}
	if len(c.Tokens) == 0 {
		return Caller{}, server.Unauthenticated("this control plane accepts no tokens: set --token-auth-file, or use Kubernetes as its source")
	}
	return Caller{}, server.Unauthenticated("the token is not accepted: unknown token")
}

// Authorize reports whether a peer may connect as a proxy. The namespace and service account of the node must be those
// of the peer's certificate. A node without a service account gets that of the certificate. Errors are gRPC statuses.
func (c *Callers) Authorize(ctx context.Context, peer *server.Peer, p *model.Proxy) error {
	id, err := c.Connected(ctx, peer)
	if err != nil {
		return err
	}
	byID, err := server.ParseID(p.ID)
	if err != nil {
		return err
	}
	for _, ns := range []string{byID.Namespace, p.Namespace} {
		if ns != id.Namespace {
			return server.Denied("%s may not be the proxy %q: its identity has namespace %q, the node %q", id, server.ShortID(p.ID), id.Namespace, ns)
		}
	}
	if p.ServiceAccount = cmp.Or(p.ServiceAccount, id.ServiceAccount); p.ServiceAccount != id.ServiceAccount {
		return server.Denied("%s may not be the proxy %q: its identity has service account %q, the node (SERVICE_ACCOUNT) %q",
			id, server.ShortID(p.ID), id.ServiceAccount, p.ServiceAccount)
	}
	return nil
}

// Connected returns the identity of a peer whose certificate was verified when it connected. It checks only whether the
// certificate has expired since. Errors are gRPC statuses.
func (c *Callers) Connected(ctx context.Context, peer *server.Peer) (model.Identity, error) {
	if len(peer.Certificates) == 0 {
		return model.Identity{}, server.Unauthenticated("the client has no certificate: connect with a certificate of the mesh")
	}
	cert := peer.Certificates[0]
	if c.now().After(cert.NotAfter) {
		return model.Identity{}, server.Unauthenticated("the client's certificate expired at %s: connect again with a new one", cert.NotAfter.Format(time.RFC3339))
	}
	domains, err := c.TrustDomains(ctx)
	if err != nil {
		return model.Identity{}, err
	}
	id, err := identity(cert, domains)
	if err != nil {
		return model.Identity{}, server.Unauthenticated("the client's certificate: %v", err)
	}
	return id, nil
}
