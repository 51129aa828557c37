package sds

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

func newRoot(t *testing.T) *catest.Root {
	t.Helper()
	root, err := catest.NewRoot("files")
	require.NoError(t, err)
	return root
}

// issue returns a certificate with its key, in PEM.
func issue(t *testing.T, root *catest.Root) (chain, key []byte) {
	t.Helper()
	pair, err := root.Pair(time.Hour, nil, []string{"web.example.com"})
	require.NoError(t, err)
	return encoded(t, pair)
}

func encoded(t *testing.T, pair *tls.Certificate) (chain, key []byte) {
	t.Helper()
	for _, der := range pair.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	return chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// weakPair returns a certificate with a key that is too short for Envoy.
func weakPair(t *testing.T) (chain, key []byte) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // Envoy refuses it
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	return encoded(t, &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private})
}

// revoked returns a list of revoked certificates.
func revoked(t *testing.T, root *catest.Root) []byte {
	t.Helper()
	pair, err := root.Pair(time.Hour, nil, []string{"old.example.com"})
	require.NoError(t, err)
	list, err := root.Revoked(pair)
	require.NoError(t, err)
	return list
}
