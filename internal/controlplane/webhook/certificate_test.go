package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/test/await"
)

func newTestAuthority(t *testing.T, at time.Time) *authority {
	t.Helper()
	a, err := newAuthority(at)
	require.NoError(t, err)
	return a
}

func TestBundleHoldsOwnOthersAndForeign(t *testing.T) {
	now := time.Now()
	foreign := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	old, first, second := newTestAuthority(t, now.Add(-2*validity)), newTestAuthority(t, now), newTestAuthority(t, now)
	bundle := trusting(bytes.Join([][]byte{old.PEM, foreign, first.PEM}, nil), second.PEM, now)
	require.Equal(t, string(foreign)+string(first.PEM)+string(second.PEM), string(bundle), "what has expired goes")
	require.Equal(t, bundle, trusting(bundle, first.PEM, now), "nothing is to be done")
	for range maxTrusted + 3 {
		bundle = trusting(bundle, newTestAuthority(t, now).PEM, now)
	}
	require.Equal(t, maxTrusted+1, strings.Count(string(bundle), "BEGIN CERTIFICATE"))
	require.Contains(t, string(bundle), string(foreign))
	require.NotContains(t, string(bundle), string(first.PEM), "the oldest go")
}

// TestRunningControlPlaneStaysInTheBundle checks that certificates of others, for example after many restarts, do not remove that of
// a control plane that runs.
func TestRunningControlPlaneStaysInTheBundle(t *testing.T) {
	now := time.Now()
	own := newTestAuthority(t, now).PEM
	others := make([][]byte, maxTrusted-1)
	for i := range others {
		others[i] = newTestAuthority(t, now).PEM
	}
	for name, tc := range map[string]struct {
		behind int
		moves  bool
	}{
		"the last":                   {0, false},
		"in the newer half":          {maxTrusted/2 - 1, false},
		"in the older half":          {maxTrusted / 2, true},
		"the first of a full bundle": {maxTrusted - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			rest := bytes.Join(others[:tc.behind], nil)
			bundle := slices.Concat(own, rest)
			want := bundle
			if tc.moves {
				want = slices.Concat(rest, own)
			}
			require.Equal(t, string(want), string(trusting(bundle, own, now)))
			require.Equal(t, string(want), string(trusting(want, own, now)), "nothing is to be done")
		})
	}
}

// TestConcurrentWritesOfCertificates checks two control planes that start together: one write fails, and
// is retried although Pods are already sent there.
func TestConcurrentWritesOfCertificates(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, "moonsail-injector", errors.New("changed"))
	require.Less(t, 20*pause(conflict), retryEvery)
	require.Equal(t, retryEvery, pause(errors.New("away")))
	require.Equal(t, keepEvery, pause(nil))
}

func TestNamesAreThoseOfTheConfiguration(t *testing.T) {
	url := "https://127.0.0.1:15017/validate"
	got := namesOf([]*registrationv1.WebhookClientConfig{
		{Service: &registrationv1.ServiceReference{Name: "moonsail", Namespace: "istio-system"}}, {URL: &url}, {URL: &url},
	})
	require.Equal(t, []string{"127.0.0.1", "moonsail.istio-system.svc"}, got)
}

// serving runs a server until the test ends, and returns its address.
func serving(t *testing.T, s *Server) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, await.From(t, ended))
	})
	return ln.Addr().String()
}

// presented returns the certificate that a server presents to clients that trust a CA.
func presented(t *testing.T, addr, name string, ca []byte) (*x509.Certificate, error) {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	d := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: name}}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func TestCertificateThatIsMade(t *testing.T) {
	a := newTestAuthority(t, time.Now())
	require.NoError(t, a.issue([]string{"one.svc", "127.0.0.1"}, time.Now()))
	addr := serving(t, &Server{certificate: a.certificate, handler: http.NotFoundHandler(), log: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"one.svc", "127.0.0.1"} {
		_, err := presented(t, addr, name, a.PEM)
		require.NoError(t, err)
	}
	_, err := presented(t, addr, "two.svc", a.PEM)
	require.ErrorContains(t, err, "two.svc")
	require.NoError(t, a.issue([]string{"two.svc"}, time.Now()))
	_, err = presented(t, addr, "two.svc", a.PEM)
	require.NoError(t, err)
	_, err = presented(t, addr, "two.svc", newTestAuthority(t, time.Now()).PEM)
	require.Error(t, err, "others' certificates do not vouch for it")
	_, err = presented(t, addr, "one.svc", a.PEM)
	require.NoError(t, err, "of two configurations neither loses its name")
}

// write puts an authority's certificate and key into files.
func write(t *testing.T, a *authority, cert, key string, at time.Time) {
	t.Helper()
	leaf, err := a.certificate(nil)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	for _, f := range []string{cert, key} {
		require.NoError(t, os.Chtimes(f, at, at))
	}
}

func TestCertificateOfFilesIsReadAgain(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	o := Options{CertFile: cert, KeyFile: key}
	h, _ := handlerOf(t)
	_, err := NewServer(o, h, nil)
	require.ErrorContains(t, err, "tls.crt", "a missing file is an error at once")

	first, second := newTestAuthority(t, time.Now()), newTestAuthority(t, time.Now())
	for _, a := range []*authority{first, second} {
		require.NoError(t, a.issue([]string{"web.svc"}, time.Now()))
	}
	write(t, first, cert, key, time.Unix(1000, 0))
	s, err := NewServer(o, h, nil)
	require.NoError(t, err)
	addr := serving(t, s)
	_, err = presented(t, addr, "web.svc", first.PEM)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, []byte("half"), 0o600))
	_, err = presented(t, addr, "web.svc", first.PEM)
	require.NoError(t, err, "while they are replaced the last good ones serve")
	write(t, second, cert, key, time.Unix(2000, 0))
	_, err = presented(t, addr, "web.svc", second.PEM)
	require.NoError(t, err)
}

// TestClientCertificates checks that a server with CAs of clients serves only clients with a certificate of these.
func TestClientCertificates(t *testing.T) {
	a, api := newTestAuthority(t, time.Now()), newTestAuthority(t, time.Now())
	require.NoError(t, a.issue([]string{"one.svc"}, time.Now()))
	cas := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(cas, api.PEM, 0o600))
	addr := serving(t, &Server{certificate: a.certificate, clientCA: cas, handler: http.NotFoundHandler(), log: slog.New(slog.DiscardHandler)})
	template, err := template(time.Now())
	require.NoError(t, err)
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, api.cert, api.key.Public(), api.key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	for name, certificates := range map[string][]tls.Certificate{"": nil, "the API server's": {{Certificate: [][]byte{der}, PrivateKey: api.key}}} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "one.svc", Certificates: certificates}}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+addr+Path, http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		if name == "" {
			require.ErrorContains(t, err, "certificate required")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
	}
	_, err = (&Server{clientCA: cas + "x"}).tlsConfig()
	require.ErrorContains(t, err, "--webhook-client-ca")
}
