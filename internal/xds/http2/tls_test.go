package http2

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
)

type sides struct{ server, client *tls.Config }

// certificates returns the configurations of both sides, each with a certificate of one authority.
func certificates(t testing.TB) sides {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	require.NoError(t, err)
	root, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(root)
	leaf := func(name string) tls.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, root, key.Public(), key)
		require.NoError(t, err)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	return sides{
		server: &tls.Config{Certificates: []tls.Certificate{leaf("server")}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		client: &tls.Config{Certificates: []tls.Certificate{leaf("client")}, RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12},
	}
}

func TestTLS(t *testing.T) {
	conf := certificates(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			v := serve(t, Options{TLS: conf.server})
			client := conf.client.Clone()
			client.MaxVersion = version
			p := v.dial().onTLS(client)
			p.greet(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: maxWindow})
			require.NoError(t, p.fr.WriteWindowUpdate(0, maxWindow-firstWindow))
			id := p.open(echo)
			p.send(id, "hello")
			require.Equal(t, "hello", string(p.message(id)))
			require.Equal(t, "client", v.call(0).PeerCertificates()[0].Subject.CommonName)
			large := long(200 << 10)
			for b := framed([]byte(large)); len(b) > 0; b = b[min(len(b), maxFrame):] {
				require.NoError(t, p.fr.WriteData(id, false, b[:min(len(b), maxFrame)]))
			}
			require.Equal(t, large, string(p.message(id)))
		})
	}
}

// TestTLSStalled: the kernel may refuse encrypted bytes at any position, and nothing is lost.
func TestTLSStalled(t *testing.T) {
	conf := certificates(t)
	v := serve(t, Options{TLS: conf.server})
	p := v.dial().onTLS(conf.client)
	p.greet(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: maxWindow})
	require.NoError(t, p.fr.WriteWindowUpdate(0, maxWindow-firstWindow))
	id := p.open(hold)
	c, text, n := v.call(0), long(300_000), 0
	for ; c.Pending() < 5; n++ {
		require.NoError(t, c.Send([][]byte{[]byte(text)}))
	}
	for range n {
		require.Equal(t, text, string(p.message(id)))
	}
	p.lives()
}

func TestTLSRefuses(t *testing.T) {
	conf := certificates(t)
	v := serve(t, Options{TLS: conf.server})

	other := conf.client.Clone()
	other.NextProtos = nil
	v.dial().onTLS(other).gone() // no ALPN
	other.NextProtos = []string{"http/1.1"}
	v.dial().onTLS(other).refused()
	p := v.dial()
	p.raw(xhttp2.ClientPreface) // no TLS
	p.gone()

	required := conf.server.Clone()
	required.ClientAuth = tls.RequireAndVerifyClientCert
	v = serve(t, Options{TLS: required})
	nobody := conf.client.Clone()
	nobody.Certificates = nil
	v.dial().onTLS(nobody).gone()
	unknown := conf.client.Clone()
	unknown.Certificates = certificates(t).client.Certificates
	v.dial().onTLS(unknown).gone()

	p = v.dial().onTLS(conf.client)
	p.greet()
	p.lives()
}

func (p *peer) refused() {
	p.t.Helper()
	_, err := p.fr.ReadFrame()
	require.Error(p.t, err)
}

// TestWithoutTLS: a connection without TLS has no certificates.
func TestWithoutTLS(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	p.open(hold)
	require.Nil(t, v.call(0).PeerCertificates())
	require.Equal(t, p.c.LocalAddr().String(), v.call(0).Peer())
}

func record(n int) []byte {
	b := make([]byte, recordHeader+n)
	binary.BigEndian.PutUint16(b[3:], uint16(n)) //nolint:gosec // records have at most 64 KB
	return b
}

func TestUpToBoundary(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    [][]byte // as received
		limit int
		want  []int // lengths returned
	}{
		{"header and payload apart", [][]byte{record(20)}, 100, []int{5, 20}},
		{"never beyond a record", [][]byte{append(record(3), record(4)...)}, 100, []int{5, 3, 5, 4}},
		{"an empty record", [][]byte{append(record(0), record(1)...)}, 100, []int{5, 5, 1}},
		{"a split header", [][]byte{record(7)[:2], record(7)[2:]}, 100, []int{2, 3, 7}},
		{"a split payload", [][]byte{record(7)[:9], record(7)[9:]}, 100, []int{5, 4, 3}},
		{"a small destination", [][]byte{record(5)}, 3, []int{3, 2, 3, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r tlsRecords
			var got []int
			for _, b := range c.in {
				for len(b) > 0 {
					n := len(r.upToBoundary(b, c.limit))
					got, b = append(got, n), b[n:]
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}
