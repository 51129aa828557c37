package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials are the cluster's, created once for a state folder.
type credentials struct {
	ca, serving, admin pair
	serviceAccounts    pair // a key alone: it signs service accounts' tokens
}

// pair is a certificate and its key, as PEM and as the files that hold it.
type pair struct {
	certPEM, keyPEM   []byte
	certFile, keyFile string
}

const validity = 10 * 365 * 24 * time.Hour

// openCredentials reads the credentials in dir, and creates them if any is missing.
func openCredentials(dir string) (credentials, error) {
	c := credentials{ca: files(dir, "ca"), serving: files(dir, "serving"), admin: files(dir, "admin"), serviceAccounts: files(dir, "service-accounts")}
	all := []*pair{&c.ca, &c.serving, &c.admin, &c.serviceAccounts}
	missing := false
	for _, p := range all {
		switch err := p.read(); {
		case errors.Is(err, fs.ErrNotExist):
			missing = true
		case err != nil:
			return c, err
		}
	}
	if !missing {
		return c, nil
	}
	if err := c.make(); err != nil {
		return c, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, err
	}
	for _, p := range all {
		if err := p.write(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func files(dir, name string) pair {
	return pair{certFile: filepath.Join(dir, name+".crt"), keyFile: filepath.Join(dir, name+".key")}
}

func (p *pair) read() (err error) {
	if p.certPEM, err = os.ReadFile(p.certFile); err != nil {
		return err
	}
	p.keyPEM, err = os.ReadFile(p.keyFile)
	return err
}

func (p *pair) write() error {
	return errors.Join(os.WriteFile(p.certFile, p.certPEM, 0o600), os.WriteFile(p.keyFile, p.keyPEM, 0o600))
}

func (c *credentials) make() error {
	ca := template("moonsail-kube")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	root, rootKey, err := c.ca.sign(ca, nil, nil)
	if err != nil {
		return err
	}
	serving := template("kube-apiserver")
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	serving.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	admin := template("admin")
	admin.Subject.Organization = []string{"system:masters"}
	admin.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	_, _, err1 := c.serving.sign(serving, root, rootKey)
	_, _, err2 := c.admin.sign(admin, root, rootKey)
	_, _, err3 := c.serviceAccounts.sign(template("service-accounts"), root, rootKey)
	return errors.Join(err1, err2, err3)
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(validity),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

// sign fills the pair with a new key and its certificate; without a parent it is self-signed.
func (p *pair) sign(t, parent *x509.Certificate, parentKey crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, parentKey = t, key
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	p.certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	p.keyPEM = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}
