package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
)

// newKey generates a private key: ECDSA P-256 unless rsaBits is set.
func newKey(rsaBits int) (crypto.Signer, error) {
	if rsaBits > 0 {
		return rsa.GenerateKey(rand.Reader, rsaBits)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// encodeKey returns PKCS #8, which Envoy accepts for both kinds.
func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// newCSR requests a SPIFFE id. The CA determines the identity from the credentials, not from this id.
func newCSR(key crypto.Signer, id *url.URL) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id}}, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// spiffeID returns spiffe://DOMAIN/ns/NAMESPACE/sa/SERVICEACCOUNT.
func spiffeID(domain, namespace, account string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: domain, Path: fmt.Sprintf("/ns/%s/sa/%s", namespace, account)}
}
