package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// issuer issues tokens and serves its keys, which can be replaced.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	id    string
	keys  atomic.Value // string; empty: no answer
	asked atomic.Int64
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.rotate(t, "1")
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		if text := i.keys.Load().(string); text != "" {
			_, _ = io.WriteString(w, text)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) rotate(t *testing.T, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := key.PublicKey.Bytes()
	require.NoError(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	i.key, i.id = key, id
	i.keys.Store(fmt.Sprintf(`{"keys": [{"kty": "EC", "crv": "P-256", "kid": %q, "x": %q, "y": %q}]}`, id, b64(point[1:33]), b64(point[33:])))
}

func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	signed := b64(fmt.Appendf(nil, `{"alg":"ES256","kid":%q}`, i.id)) + "." + b64(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	require.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return "Bearer " + signed + "." + b64(signature)
}

func authentication(name, rules string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: %s, namespace: shop}\nspec: {jwtRules: [%s]}", name, rules)
}

func TestTokens(t *testing.T) {
	i := startIssuer(t)
	g := startGuarded(t)
	later := time.Now().Add(time.Hour).Unix()
	good := i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "jane", "exp": later})
	// The policy states what a token must contain; there is one for each set of keys.
	with := func(uri string) {
		t.Helper()
		g.given(authentication("a", fmt.Sprintf("{issuer: \"https://a.example.com\", jwksUri: %q}", uri)),
			authorization("jane", "{rules: [{from: [{source: {requestPrincipals: [\"https://a.example.com/jane\"]}}]}, {to: [{operation: {paths: [/open]}}]}]}"))
	}
	accepted := func(token string) func() bool {
		return func() bool { return g.ask("GET", "/", "Authorization", token) == 200 }
	}

	with(i.URL + "/first")
	eventually(t, "the keys have come", accepted(good), nil)
	g.requireStatus(403, "GET", "/") // no token
	g.requireStatus(200, "GET", "/open")
	for what, token := range map[string]string{
		"expired":      i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "jane", "exp": 1}),
		"wrong issuer": i.token(t, map[string]any{"iss": "https://b.example.com", "sub": "jane", "exp": later}),
		"forged":       good[:len(good)-8] + "AAAAAAAA",
		"no token":     "Bearer x",
	} {
		require.NotEqual(t, 200, g.ask("GET", "/", "Authorization", token), what)
	}
	g.requireStatus(401, "GET", "/open", "Authorization", good[:len(good)-8]+"AAAAAAAA") // a bad token is worse than none
	g.requireStatus(403, "GET", "/", "Authorization", i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "joe", "exp": later}))

	i.rotate(t, "2")
	second := i.token(t, map[string]any{"iss": "https://a.example.com", "sub": "jane", "exp": later})
	g.requireStatus(401, "GET", "/", "Authorization", second) // the keys are still the old ones
	with(i.URL + "/second")
	eventually(t, "the new keys have come", accepted(second), nil)
	g.requireStatus(401, "GET", "/open", "Authorization", good)

	i.keys.Store("")
	asked := i.asked.Load()
	with(i.URL + "/third")
	eventually(t, "the keys have been asked for", func() bool { return i.asked.Load() > asked }, nil)
	g.requireStatus(401, "GET", "/open", "Authorization", second) // without keys no token is valid
	g.requireStatus(200, "GET", "/open")
}
