package live

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// authority signs the certificates of both sides, which the control plane or an agent would serve.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "live"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	return &authority{c, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// issue returns a certificate with its key; uri may be empty.
func (a *authority) issue(uri string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"live"}}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			return nil, nil, err
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalECPrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}), err
}

// playTLS replaces the certificates of a chain that terminates TLS. The clients that it accepts stay the same.
func (a *authority) playTLS(chain *listenerv3.FilterChain) error {
	context := &tlsv3.DownstreamTlsContext{}
	if chain.GetTransportSocket().GetTypedConfig().UnmarshalTo(context) != nil {
		return nil
	}
	certificate, key, err := a.issue("")
	if err != nil {
		return err
	}
	common := context.GetCommonTlsContext()
	common.TlsCertificateSdsSecretConfigs = nil
	common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: inline(certificate), PrivateKey: inline(key)}}
	expected := common.GetValidationContext()
	if combined := common.GetCombinedValidationContext(); combined != nil {
		expected = combined.GetDefaultValidationContext()
	}
	if expected != nil {
		expected.TrustedCa, expected.Crl = inline(a.pem), nil
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: expected}
	}
	packed, err := anypb.New(context)
	chain.TransportSocket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: packed}
	return err
}

func inline(text []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}

// client returns the client's TLS configuration of a call.
func (a *authority) client(c simulate.Call) (*tls.Config, error) {
	out := &tls.Config{ServerName: c.SNI, NextProtos: c.ALPN, InsecureSkipVerify: true} //nolint:gosec // clients' certificates are what is tested
	if c.Principal == "" {
		return out, nil
	}
	certificate, key, err := a.issue(c.Principal)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	out.Certificates = []tls.Certificate{pair}
	return out, err
}

// callTLS makes a call with TLS that Envoy terminates.
func (a *authority) callTLS(address string, c simulate.Call) (*Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	config, err := a.client(c)
	if err != nil {
		return nil, err
	}
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		raw, err := dial(ctx, address, c)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		return conn, nil
	}
	if c.Protocol == simulate.HTTPS {
		return exchange(ctx, c, "https://", &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialTLSContext: connect})
	}
	return a.bytesInTLS(ctx, connect)
}

func (a *authority) bytesInTLS(ctx context.Context, connect func(ctx context.Context, _, _ string) (net.Conn, error)) (*Answer, error) {
	conn, err := connect(ctx, "", "")
	if err != nil {
		return &Answer{Closed: true}, ctx.Err()
	}
	selected := ""
	if c, ok := conn.(*tls.Conn); ok {
		selected = c.ConnectionState().NegotiatedProtocol
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write([]byte("0 bytes that are no protocol\n")); err != nil {
		return &Answer{Closed: true}, ctx.Err()
	}
	b, _ := io.ReadAll(conn)
	if name := strings.TrimSpace(string(b)); name != "" {
		return &Answer{Seen: &seen{Cluster: name}, ALPN: selected}, nil
	}
	return &Answer{Closed: true}, ctx.Err()
}
