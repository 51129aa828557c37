package live

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var fileNames = regexp.MustCompile(`"filename":\s*"([^"]+)"`)

// withFiles creates the certificates that a configuration names, because Envoy reads them and a test has none. A name
// that contains "key" is a private key.
func withFiles(config []byte, dir string) ([]byte, error) {
	certificate, key, err := keyPair()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"cert.pem": certificate, "key.pem": key}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return fileNames.ReplaceAllFunc(config, func(match []byte) []byte {
		name := string(fileNames.FindSubmatch(match)[1])
		if _, err := os.Stat(name); err == nil {
			return match
		}
		made := "cert.pem"
		if strings.Contains(name, "key") {
			made = "key.pem"
		}
		return []byte(`"filename":"` + filepath.Join(dir, made) + `"`)
	}), nil
}

// keyPair returns a self-signed certificate with its key, in PEM.
func keyPair() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
