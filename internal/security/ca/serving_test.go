package ca

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// hello returns the certificate that a client gets, which trusts roots and expects a name.
func hello(t *testing.T, server *tls.Config, roots, name string, now time.Time, client ...tls.Certificate) (*x509.Certificate, error) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	done := make(chan error, 1)
	go func() {
		defer far.Close()
		c := tls.Server(far, server)
		err := c.Handshake()
		if err == nil {
			_, err = c.Write([]byte("x"))
		}
		done <- err
	}()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(roots)))
	conf := &tls.Config{RootCAs: pool, ServerName: name, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12, Time: func() time.Time { return now }}
	if len(client) > 0 { // sent even if the server does not ask for its issuer
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client[0], nil }
	}
	c := tls.Client(near, conf)
	_, err := c.Read(make([]byte, 1))
	near.Close()
	if failed := await.From(t, done); err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	require.Equal(t, "h2", c.ConnectionState().NegotiatedProtocol)
	return c.ConnectionState().PeerCertificates[0], nil
}

// TestServing checks the names of the control plane's certificate, its replacement before expiry and after a change of
// the authority, and the verification of clients by the present roots.
func TestServing(t *testing.T) {
	place, c := &memory{}, &setClock{at: time.Now()}
	a := open(t, Options{Store: place, Now: c.now})
	conf := a.ServerTLS([]string{"istiod.istio-system.svc", "127.0.0.1", "*.example.com"})
	roots := rootsOf(a)
	first, err := hello(t, conf, roots, "istiod.istio-system.svc", c.now())
	require.NoError(t, err)
	for _, name := range []string{"127.0.0.1", "mesh.example.com"} {
		again, err := hello(t, conf, roots, name, c.now())
		require.NoError(t, err)
		require.Equal(t, first.SerialNumber, again.SerialNumber)
	}
	_, err = hello(t, conf, roots, "bank.example.org", c.now())
	require.ErrorContains(t, err, "bank.example.org")

	c.add(servingTTL * 6 / 10)
	second, err := hello(t, conf, roots, "127.0.0.1", c.now())
	require.NoError(t, err)
	require.NotEqual(t, first.SerialNumber, second.SerialNumber, "it is not near its end, and replaced")
	require.True(t, second.NotAfter.After(first.NotAfter))

	client := pairOf(t, a)
	_, err = hello(t, conf, roots, "127.0.0.1", c.now(), client)
	require.NoError(t, err)
	stranger := pairOf(t, open(t, Options{Now: c.now}))
	_, err = hello(t, conf, roots, "127.0.0.1", c.now(), stranger)
	require.Error(t, err)
	c.add(25 * time.Hour)
	_, err = hello(t, conf, roots, "127.0.0.1", c.now(), client)
	require.Error(t, err, "it has expired")

	c.at = time.Now()
	given, root := plugIn(t, nil)
	place.set(given)
	require.Empty(t, a.lookNow(t))
	_, err = hello(t, conf, roots, "127.0.0.1", c.now())
	require.Error(t, err, "the old root is not what it is signed by")
	_, err = hello(t, conf, string(root.pem()), "127.0.0.1", c.now(), pairOf(t, a))
	require.NoError(t, err, "the chain leads to the root")
	_, err = hello(t, conf, string(root.pem()), "127.0.0.1", c.now(), client)
	require.Error(t, err, "a certificate of the old root is not believed any more")
}

// pairOf returns a workload's certificate of an authority.
func pairOf(t *testing.T, a *Authority) tls.Certificate {
	t.Helper()
	key := ecKey(t)
	got, err := a.Issue(request(t, key), web, 0)
	require.NoError(t, err)
	out := tls.Certificate{PrivateKey: key}
	for _, text := range got.Chain[:len(got.Chain)-1] {
		c, err := parseCertificates([]byte(text))
		require.NoError(t, err)
		out.Certificate = append(out.Certificate, c[0].Raw)
	}
	return out
}
