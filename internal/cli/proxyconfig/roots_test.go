package proxyconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// newRoot returns a root CA as PEM. Roots of one name differ only in their keys.
func newRoot(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(10), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// trusting starts an admin interface of an Envoy with these roots.
func trusting(t *testing.T, roots ...string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "dynamic_active_secrets,dynamic_warming_secrets", r.FormValue("mask"), "asks for nothing else")
		text := base64.StdEncoding.EncodeToString([]byte(strings.Join(roots, "")))
		fmt.Fprintf(w, `{"configs": [{"dynamic_active_secrets": [{"name": "ROOTCA", "secret": {"validation_context": {"trusted_ca": {"inline_bytes": %q}}}}]}]}`, text)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestCompareRoots checks that roots are compared by content and not by order, and that the exit status has the result.
func TestCompareRoots(t *testing.T) {
	one, other := newRoot(t, "mesh"), newRoot(t, "mesh")
	compare := func(a, b string, more ...string) (int, string, string) {
		return moonsail(t, append([]string{"proxy-config", "rootca-compare", "a.shop", "b.shop", "--admin", a + "," + b}, more...)...)
	}
	status, out, errOut := compare(trusting(t, one, other), trusting(t, other, one))
	require.Zero(t, status, errOut)
	require.Contains(t, out, "both trust the same root CAs")
	require.Equal(t, 2, strings.Count(out, "CN=mesh"), "each root once: %s", out)

	status, out, _ = compare(trusting(t, one), trusting(t, one, other))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "they trust different root CAs, with 1 in common")
	lines := strings.Split(out, "\n")
	require.Regexp(t, `yes +yes$`, lines[1])
	require.Regexp(t, `no +yes$`, lines[2])

	status, out, _ = compare(trusting(t, one), trusting(t, other), "-o", "json")
	require.Equal(t, terminal.ExitFailed, status)
	var got comparedRoots
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.False(t, got.Same)
	require.Equal(t, "b.shop", got.Proxies[1].Proxy)
	require.NotEqual(t, got.Proxies[0].Roots[0].SHA256, got.Proxies[1].Roots[0].SHA256)

	status, _, errOut = compare(trusting(t, one), trusting(t))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "its Envoy has no root CA")
	require.Contains(t, errOut, "where: b.shop")
	status, _, errOut = moonsail(t, "pc", "rc", "a.shop", "b.shop", "--admin", "127.0.0.1:1")
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, errOut, "one for each of the two proxies")
	status, _, _ = moonsail(t, "pc", "rc", "a.shop")
	require.Equal(t, terminal.ExitUsage, status)
}
