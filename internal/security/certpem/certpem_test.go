package certpem_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/security/certpem"
)

// TestDecodeRoots checks that roots with a negative serial number, which Envoy accepts and Go does not, are left out.
func TestDecodeRoots(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(0x55)}, &x509.Certificate{}, public, private)
	require.NoError(t, err)
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	good := encode("CERTIFICATE", der)
	negative := encode("CERTIFICATE", bytes.Replace(der, []byte{2, 1, 0x55}, []byte{2, 1, 0xd5}, 1))
	for name, tc := range map[string]struct{ text, kept, leftOut, err string }{
		"good":           {text: good, kept: good},
		"one negative":   {text: negative + good, kept: good, leftOut: "certificate 1: x509: negative serial number"},
		"between others": {text: good + negative + good, kept: good + good, leftOut: "certificate 2: x509: negative serial number"},
		"all negative":   {text: negative + negative, err: "certificate 1: x509: negative serial number; certificate 2: x509: negative serial number"},
		"other content":  {text: "# roots\n" + encode("X", der) + good, kept: good},
		"none":           {text: encode("X", der), err: "no certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			list, leftOut, err := certpem.DecodeRoots([]byte(tc.text))
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.kept, string(certpem.Encode(list...)))
			if tc.leftOut == "" {
				require.NoError(t, leftOut)
			} else {
				require.EqualError(t, leftOut, tc.leftOut)
			}
			_, err = certpem.Decode([]byte(tc.text))
			require.Equal(t, tc.leftOut != "", err != nil, "Decode wants all")
		})
	}
}
