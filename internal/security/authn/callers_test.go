package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

const webID = "spiffe://cluster.local/ns/shop/sa/web"

// table is Tokens with the tokens of a test.
type table map[string]struct {
	namespace, account string
	err                error
}

func (table) Kind() string { return "table" }
func (l table) Holder(_ context.Context, token string) (namespace, serviceAccount string, err error) {
	e, ok := l[token]
	if !ok {
		return "", "", ErrUnknown
	}
	return e.namespace, e.account, e.err
}

func callers(i *issuer, tokens ...Tokens) *Callers {
	return &Callers{
		TrustDomains: func(context.Context) ([]string, error) { return []string{"cluster.local", "old.example.com"}, nil },
		Roots:        func() *x509.CertPool { return i.pool }, Tokens: tokens,
	}
}

// requireStatus requires a gRPC status with a code and a text.
func requireStatus(t *testing.T, err error, code codes.Code, says string) {
	t.Helper()
	require.Equal(t, code, status.Code(err), "%v", err)
	require.Contains(t, status.Convert(err).Message(), says)
}

func TestAuthenticate(t *testing.T) {
	root := newIssuer(t)
	tokens := table{
		"good":    {namespace: "shop", account: "web"},
		"refused": {err: refuse("it has expired")},
		"later":   {err: errors.New("the API server is away")},
		"odd":     {namespace: "sh/op", account: "web"},
	}
	c := callers(root, table{"other": {}}, tokens)
	web := root.leaf(t, webID)
	for name, r := range map[string]struct {
		peer server.Peer
		id   string // empty: refused
		by   string
		code codes.Code
		says string
	}{
		"certificate":               {peer: server.Peer{Certificates: web}, id: webID, by: "certificate"},
		"certificate of an alias":   {peer: server.Peer{Certificates: root.leaf(t, "spiffe://old.example.com/ns/shop/sa/web")}, id: webID, by: "certificate"},
		"token":                     {peer: server.Peer{Authorization: "Bearer good"}, id: webID, by: "table"},
		"token in small letters":    {peer: server.Peer{Authorization: "bearer  good "}, id: webID, by: "table"},
		"foreign, with a token":     {peer: server.Peer{Certificates: newIssuer(t).leaf(t, webID), Authorization: "Bearer good"}, id: webID, by: "table"},
		"nothing":                   {code: codes.Unauthenticated, says: "neither a certificate nor a token"},
		"no bearer":                 {peer: server.Peer{Authorization: "Basic good"}, code: codes.Unauthenticated, says: `not "Bearer <token>"`},
		"empty bearer":              {peer: server.Peer{Authorization: "Bearer "}, code: codes.Unauthenticated, says: `not "Bearer <token>"`},
		"unknown token":             {peer: server.Peer{Authorization: "Bearer who"}, code: codes.Unauthenticated, says: "unknown token"},
		"refused token":             {peer: server.Peer{Authorization: "Bearer refused"}, code: codes.Unauthenticated, says: "not accepted: it has expired"},
		"token that is not known":   {peer: server.Peer{Authorization: "Bearer later"}, code: codes.Unavailable, says: "the API server is away"},
		"token of an odd namespace": {peer: server.Peer{Authorization: "Bearer odd"}, code: codes.Unauthenticated, says: "not a valid namespace"},
		"foreign certificate":       {peer: server.Peer{Certificates: newIssuer(t).leaf(t, webID)}, code: codes.Unauthenticated, says: "unknown authority"},
		"other trust domain":        {peer: server.Peer{Certificates: root.leaf(t, "spiffe://example.com/ns/shop/sa/web")}, code: codes.Unauthenticated, says: "not in the mesh's trust domains (cluster.local, old.example.com)"},
		"not a SPIFFE id":           {peer: server.Peer{Certificates: root.leaf(t, "https://example.com")}, code: codes.Unauthenticated, says: "not a SPIFFE id"},
		"no name":                   {peer: server.Peer{Certificates: root.leaf(t)}, code: codes.Unauthenticated, says: "0 URI names"},
		"two names":                 {peer: server.Peer{Certificates: root.leaf(t, webID, "spiffe://cluster.local/ns/bank/sa/teller")}, code: codes.Unauthenticated, says: "2 URI names"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.Authenticate(t.Context(), &r.peer)
			if r.id == "" {
				requireStatus(t, err, r.code, r.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, r.id, got.Identity.String())
			require.Equal(t, r.by, got.By)
		})
	}
	c.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	_, err := c.Authenticate(t.Context(), &server.Peer{Certificates: web})
	requireStatus(t, err, codes.Unauthenticated, "expired")
	_, err = callers(root).Authenticate(t.Context(), &server.Peer{Authorization: "Bearer x"})
	requireStatus(t, err, codes.Unauthenticated, "accepts no tokens")
}

func TestAuthorize(t *testing.T) {
	root := newIssuer(t)
	c := callers(root)
	web := &server.Peer{Certificates: root.leaf(t, webID)}
	proxy := func(ns, account string) *model.Proxy {
		p, err := server.ParseID("sidecar~10.0.0.1~web-1." + ns + "~" + ns + ".svc.cluster.local")
		require.NoError(t, err)
		p.ServiceAccount = account
		return p
	}
	p := proxy("shop", "")
	require.NoError(t, c.Authorize(t.Context(), web, p))
	require.Equal(t, "web", p.ServiceAccount, "the certificate knows it")
	require.NoError(t, c.Authorize(t.Context(), web, proxy("shop", "web")))

	requireStatus(t, c.Authorize(t.Context(), web, proxy("bank", "web")), codes.PermissionDenied, `"shop", the node "bank"`)
	requireStatus(t, c.Authorize(t.Context(), web, proxy("shop", "teller")), codes.PermissionDenied, `"web", the node (SERVICE_ACCOUNT) "teller"`)
	p = proxy("bank", "")
	p.Namespace = "shop" // set by its metadata
	requireStatus(t, c.Authorize(t.Context(), web, p), codes.PermissionDenied, `the node "bank"`)
	p = proxy("shop", "")
	p.Namespace = "bank"
	requireStatus(t, c.Authorize(t.Context(), web, p), codes.PermissionDenied, `the node "bank"`)
	requireStatus(t, c.Authorize(t.Context(), &server.Peer{}, proxy("shop", "")), codes.Unauthenticated, "the client has no certificate")
	requireStatus(t, c.Authorize(t.Context(), &server.Peer{Certificates: root.leaf(t, "spiffe://example.com/ns/shop/sa/web")}, proxy("shop", "")), codes.Unauthenticated, "trust domain")
	c.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	requireStatus(t, c.Authorize(t.Context(), web, proxy("shop", "")), codes.Unauthenticated, "expired at")
}
