package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	caapi "istio.io/api/security/v1alpha1"
)

// callTimeout bounds one request, including the connection.
const callTimeout = 10 * time.Second

// maxToken is more bytes than any token has.
const maxToken = 64 << 10

// obtain gets a certificate for a new key, or reads the mounted files.
func (r *Renewer) obtain(ctx context.Context) (*Secrets, error) {
	if r.FilesDir != "" {
		return r.readFiles()
	}
	key, err := newKey(r.RSABits)
	if err != nil {
		return nil, err
	}
	csr, err := newCSR(key, spiffeID(r.TrustDomain, r.Namespace, r.ServiceAccount))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	chain, err := r.call(ctx, csr)
	r.Metrics.called(time.Since(start), err)
	if err != nil {
		return nil, err
	}
	s, err := r.accept(key, chain)
	if err != nil {
		return nil, fmt.Errorf("%s sent an invalid answer: %w", r.place(), err)
	}
	return s, nil
}

// call authenticates with the token. If the CA does not accept the token, or cannot check it, call authenticates with
// the certificate that is to be renewed. Tokens of machines expire earlier, and an API server may be unavailable for
// long.
func (r *Renewer) call(ctx context.Context, csr []byte) ([]string, error) {
	token, cert, err := r.credentials()
	if err != nil {
		return nil, err
	}
	chain, err := r.ask(ctx, csr, token, cert)
	if err == nil || token == "" {
		return chain, err
	}
	s, _ := r.Secrets()
	if cert = s.valid(time.Now()); cert == nil || !undecided(err) {
		return nil, err
	}
	if chain, failed := r.ask(ctx, csr, "", cert); failed == nil {
		r.Log.Warn("renewed with the present certificate instead of the token", "error", err)
		return chain, nil
	}
	return nil, err
}

// undecided reports whether a request may have failed because of the token.
func undecided(err error) bool {
	var r *refusal
	return errors.As(err, &r) && (r.code == codes.Unauthenticated || r.code == codes.Unavailable || r.code == codes.DeadlineExceeded)
}

// ask sends one CreateCertificate on a new connection, which verifies the CA by the present roots, and may reach
// another control plane. token may be empty, or cert nil.
func (r *Renewer) ask(ctx context.Context, csr []byte, token string, cert *tls.Certificate) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	security, target := insecure.NewCredentials(), r.Address
	if !strings.HasPrefix(target, "unix:") {
		s, _ := r.Secrets()
		security, target = credentials.NewTLS(s.clientTLS(cert, r.ServerNames)), "dns:///"+target
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(security), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.place(), err)
	}
	defer func() { _ = conn.Close() }()
	ctx = metadata.AppendToOutgoingContext(ctx, "ClusterID", r.ClusterID)
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	resp, err := caapi.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx,
		&caapi.IstioCertificateRequest{Csr: string(csr), ValidityDuration: int64(r.TTL.Seconds())})
	if err != nil {
		return nil, r.explain(err, token != "")
	}
	return resp.GetCertChain(), nil
}

// credentials returns the token; without one, the certificate that is to be renewed.
func (r *Renewer) credentials() (token string, cert *tls.Certificate, err error) {
	token, err = readToken(r.TokenFile)
	if err == nil {
		return token, nil, nil
	}
	s, _ := r.Secrets()
	if cert = s.valid(time.Now()); cert != nil {
		return "", cert, nil
	}
	return "", nil, fmt.Errorf("no credentials for %s: %w: correct --token-file", r.place(), err)
}

func readToken(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	if info.Size() > maxToken {
		return "", fmt.Errorf("token: %s: too large: %d bytes", file, info.Size())
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(content))
	switch {
	case token == "":
		return "", fmt.Errorf("token: %s: empty", file)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("token: %s: invalid characters: a token is ASCII without spaces", file)
	}
	return token, nil
}

// explain adds advice to an error of the CA.
func (r *Renewer) explain(err error, byToken bool) error {
	st := status.Convert(err)
	shown := "its certificate"
	if byToken {
		shown = "the token in " + r.TokenFile
	}
	advice := "is the CA running there? See --ca-address"
	switch st.Code() {
	case codes.Unauthenticated:
		advice = shown + " was not accepted: is it of this mesh and still valid? See --token-file"
	case codes.PermissionDenied:
		advice = fmt.Sprintf("%s may not have a certificate of namespace %s, service account %s", shown, r.Namespace, r.ServiceAccount)
	case codes.InvalidArgument:
		advice = "see --cert-ttl, --rsa-key-size and --trust-domain"
	case codes.Unimplemented:
		advice = "the server issues no certificates: correct --ca-address"
	case codes.Unavailable:
		if strings.Contains(st.Message(), "x509: ") {
			advice = "its certificate does not match the roots in " + r.RootsFile + ", or its name: correct --xds-root-cert or --xds-server-name"
		}
	}
	return &refusal{st.Code(), fmt.Sprintf("%s: %s: %s (%s)", r.place(), st.Code(), st.Message(), advice)}
}

// refusal is an error of the CA with advice.
type refusal struct {
	code codes.Code
	text string
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// clientTLS is TLS to a server whose certificate has one of names. The first one is the SNI.
func (s *Secrets) clientTLS(cert *tls.Certificate, names []string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: names[0],
		// VerifyConnection verifies the server, because crypto/tls supports one name only.
		InsecureSkipVerify: true, //nolint:gosec // verified below
		VerifyConnection:   func(cs tls.ConnectionState) error { return s.verifyServer(cs.PeerCertificates, names) },
	}
	if cert != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

func (s *Secrets) verifyServer(chain []*x509.Certificate, names []string) error {
	if len(chain) == 0 || s.pool == nil {
		return errors.New("x509: no roots to verify the server")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{Roots: s.pool, Intermediates: between})
	if err != nil {
		return err
	}
	if err := s.revoked.Check(chains); err != nil {
		return err
	}
	for _, name := range names {
		if err = chain[0].VerifyHostname(name); err == nil {
			return nil
		}
	}
	return fmt.Errorf("x509: the server's certificate has none of the names %s: %w", strings.Join(names, ", "), err)
}

// ServerTLS is TLS to a server whose certificate has one of names, without a client certificate.
func ServerTLS(roots *x509.CertPool, names []string) *tls.Config {
	return (&Secrets{pool: roots}).clientTLS(nil, names)
}
