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
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Caller is who calls.
type Caller struct {
	Identity model.Identity
	By       string // what says so: "certificate", "Kubernetes token", "token file"
}

// Tokens knows whose some tokens are.
type Tokens interface {
	// Kind is what its tokens are called in messages.
	Kind() string
	// Holder is the namespace and service account of a token. ErrUnknown: it is none of these
	// tokens, and may be another's. A Refusal: it is, and is not accepted. Any other error
	// says why that is not known now.
	Holder(ctx context.Context, token string) (namespace, serviceAccount string, err error)
}

// ErrUnknown says that a token is not known.
var ErrUnknown = errors.New("the token is not known")

// Refusal is why a token is not accepted.
type Refusal struct{ Text string }

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Callers finds out who calls.
type Callers struct {
	// TrustDomains are the mesh's: the first is what identities are given, the others are
	// those that it had, or shares.
	TrustDomains func() []string
	Roots        func() *x509.CertPool // of its certificates
	Tokens       []Tokens              // asked in this order
	Now          func() time.Time      // nil: time.Now
}

// Authenticate tells who calls, by a certificate, or else by a token. Its errors are gRPC's
// statuses.
func (c *Callers) Authenticate(ctx context.Context, p *server.Peer) (Caller, error) {
	if len(p.Certificates) > 0 {
		id, err := c.fromCertificate(p.Certificates)
		if err == nil {
			id.TrustDomain = c.TrustDomains()[0]
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
	return c.fromToken(ctx, token)
}

// fromCertificate checks a certificate as of now: the connection may be old, and roots may
// not be trusted any more.
func (c *Callers) fromCertificate(chain []*x509.Certificate) (model.Identity, error) {
	between := x509.NewCertPool()
	for _, i := range chain[1:] {
		between.AddCert(i)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.Roots(), Intermediates: between, CurrentTime: c.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return model.Identity{}, err
	}
	return c.identity(chain[0])
}

// identity is that of a certificate which was checked.
func (c *Callers) identity(cert *x509.Certificate) (model.Identity, error) {
	if len(cert.URIs) != 1 {
		return model.Identity{}, fmt.Errorf("it has %d URIs as names instead of one SPIFFE id", len(cert.URIs))
	}
	id, err := model.ParseIdentity(cert.URIs[0].String())
	if err != nil {
		return model.Identity{}, err
	}
	if domains := c.TrustDomains(); !slices.Contains(domains, id.TrustDomain) {
		return model.Identity{}, fmt.Errorf("%s is not of this mesh's trust domain (%s)", id, strings.Join(domains, ", "))
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

// bearer takes the token out of an authorization header.
func bearer(header string) (string, error) {
	const scheme = "bearer "
	token := ""
	if len(header) > len(scheme) && strings.EqualFold(header[:len(scheme)], scheme) {
		token = strings.TrimSpace(header[len(scheme):])
	}
	switch {
	case header == "":
		return "", errors.New("who calls shows neither a certificate nor a token (metadata authorization: Bearer <token>)")
	case token == "":
		return "", errors.New(`the metadata "authorization" is not "Bearer <token>"`)
	case len(token) > maxToken:
		return "", fmt.Errorf("the token has %d bytes; %d is the limit", len(token), maxToken)
	}
	return token, nil
}

func (c *Callers) fromToken(ctx context.Context, token string) (Caller, error) {
	for _, t := range c.Tokens {
		ns, account, err := t.Holder(ctx, token)
		var refused *Refusal
		switch {
		case errors.Is(err, ErrUnknown):
			continue
		case errors.As(err, &refused):
			return Caller{}, server.Unauthenticated("the token is not accepted: %s", refused.Text)
		case err != nil:
			return Caller{}, server.Unavailable("it cannot be found out now whose the token is: %v", err)
		}
		id := model.Identity{TrustDomain: c.TrustDomains()[0], Namespace: ns, ServiceAccount: account}
		if err := id.Check(); err != nil {
			return Caller{}, server.Unauthenticated("the token is not accepted: %v", err)
		}
		return Caller{id, t.Kind()}, nil
	}
	if len(c.Tokens) == 0 {
		return Caller{}, server.Unauthenticated("this control plane takes no tokens: give it --token-auth-file, or Kubernetes as its source")
	}
	return Caller{}, server.Unauthenticated("the token is not accepted: unknown token")
}

// Authorize decides whether a peer may be a proxy, by its certificate: the namespace and the
// service account must be those of its identity. Where the node says no service account, the
// identity does. Its errors are gRPC's statuses.
func (c *Callers) Authorize(peer *server.Peer, p *model.Proxy) error {
	id, err := c.Connected(peer)
	if err != nil {
		return err
	}
	byID, err := server.ParseID(p.ID)
	if err != nil {
		return err
	}
	for _, ns := range []string{byID.Namespace, p.Namespace} {
		if ns != id.Namespace {
			return server.Denied("%s may not be the proxy %s: the namespace of its identity is %q, the node's is %q", id, p.ID, id.Namespace, ns)
		}
	}
	if p.ServiceAccount = cmp.Or(p.ServiceAccount, id.ServiceAccount); p.ServiceAccount != id.ServiceAccount {
		return server.Denied("%s may not be the proxy %s: the service account of its identity is %q, the node's (SERVICE_ACCOUNT) is %q",
			id, p.ID, id.ServiceAccount, p.ServiceAccount)
	}
	return nil
}

// Connected is the identity of a peer that has shown its certificate when it connected, and
// was checked then: it is looked only whether that has expired since. Its errors are gRPC's
// statuses.
func (c *Callers) Connected(peer *server.Peer) (model.Identity, error) {
	if len(peer.Certificates) == 0 {
		return model.Identity{}, server.Unauthenticated("a certificate of the mesh is needed here, and the client has shown none")
	}
	cert := peer.Certificates[0]
	if c.now().After(cert.NotAfter) {
		return model.Identity{}, server.Unauthenticated("the client's certificate has expired at %s: connect again with a new one", cert.NotAfter.Format(time.RFC3339))
	}
	id, err := c.identity(cert)
	if err != nil {
		return model.Identity{}, server.Unauthenticated("the client's certificate: %v", err)
	}
	return id, nil
}
