package translate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tlsFolder has the files $TLS/cert.pem, key.pem and root.pem of the corpus, which Envoy reads when it validates.
// TestMain writes them once.
var tlsFolder string

func TestMain(m *testing.M) {
	var err error
	if tlsFolder, err = os.MkdirTemp("", "translate"); err == nil {
		err = writeCertificate(tlsFolder)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(tlsFolder); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func writeCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name, kind string
		der        []byte
	}{{"cert.pem", "CERTIFICATE", cert}, {"root.pem", "CERTIFICATE", cert}, {"key.pem", "PRIVATE KEY", private},
		{"~cert.pem", "CERTIFICATE", cert}, {"~root.pem", "CERTIFICATE", cert}} {
		text := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := os.WriteFile(filepath.Join(dir, f.name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
