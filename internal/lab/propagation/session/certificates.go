package session

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// certificates issues one certificate for the simulated proxies of each namespace, signed with the key of the control
// plane's authority.
type certificates struct {
	dir string // of the authority; files have Istio's names

	mu   sync.Mutex // guards made
	made map[string]*tls.Config
}

// certificateTime is the validity, longer than any run.
const certificateTime = 24 * time.Hour

// of returns the TLS configuration for proxies of a namespace.
func (c *certificates) of(namespace string) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.made[namespace]; t != nil {
		return t, nil
	}
	t, err := c.config(namespace)
	if err != nil {
		return nil, fmt.Errorf("certificate for proxies of namespace %s: %w", namespace, err)
	}
	if c.made == nil {
		c.made = map[string]*tls.Config{}
	}
	c.made[namespace] = t
	return t, nil
}

func (c *certificates) config(namespace string) (*tls.Config, error) {
	authority, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "ca-cert.pem"), filepath.Join(c.dir, "ca-key.pem"))
	if err != nil {
		return nil, err
	}
	roots, err := os.ReadFile(filepath.Join(c.dir, "root-cert.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return nil, fmt.Errorf("%s: no certificate", filepath.Join(c.dir, "root-cert.pem"))
	}
	leaf, err := signFor(&authority, namespace)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{leaf}, RootCAs: pool, ServerName: "localhost",
		NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13,
	}, nil
}

// signFor issues a key and a certificate for the default service account of a namespace.
func signFor(authority *tls.Certificate, namespace string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(certificateTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/default"}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
