package external_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/security/external"
	"github.com/moonsail/moonsail/test/logtext"
)

// TestBrokenRoots checks that a root which cannot be read does not keep the control plane from starting.
func TestBrokenRoots(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"istiod.test"},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	require.NoError(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))

	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	log := &logtext.Buffer{}
	a, err := external.Open(t.Context(), external.Options{
		CertFile: write("cert.pem", text), KeyFile: write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))),
		RootFile: write("roots.pem", "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"+text),
		Log:      slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	trust, _ := a.Trust()
	require.Equal(t, text, trust.Roots)
	require.Contains(t, log.String(), "certificate 1: x509: malformed certificate")
}
