package jwt

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signer makes tokens with one key, and has the set of that key.
type signer struct {
	alg  string
	jwk  map[string]string
	sign func(signed []byte) []byte
}

func signers(t *testing.T) []signer {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := e.PublicKey.Bytes()
	require.NoError(t, err)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	digest := func(b []byte) []byte { d := sha256.Sum256(b); return d[:] }
	rsaJWK := map[string]string{"kty": "RSA", "n": b64(r.N.Bytes()), "e": "AQAB"}
	return []signer{
		{"RS256", rsaJWK, func(b []byte) []byte {
			s, err := rsa.SignPKCS1v15(rand.Reader, r, crypto.SHA256, digest(b))
			require.NoError(t, err)
			return s
		}},
		{"PS256", rsaJWK, func(b []byte) []byte {
			s, err := rsa.SignPSS(rand.Reader, r, crypto.SHA256, digest(b), nil)
			require.NoError(t, err)
			return s
		}},
		{"ES256", map[string]string{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}, func(b []byte) []byte {
			x, y, err := ecdsa.Sign(rand.Reader, e, digest(b))
			require.NoError(t, err)
			out := make([]byte, 64)
			x.FillBytes(out[:32])
			y.FillBytes(out[32:])
			return out
		}},
		{"EdDSA", map[string]string{"kty": "OKP", "crv": "Ed25519", "x": b64(public)}, func(b []byte) []byte { return ed25519.Sign(private, b) }},
		{"HS256", map[string]string{"kty": "oct", "k": b64([]byte("secret"))}, func(b []byte) []byte {
			m := hmac.New(sha256.New, []byte("secret"))
			m.Write(b)
			return m.Sum(nil)
		}},
	}
}

func (s signer) token(kid string, claims map[string]any) string {
	payload, _ := json.Marshal(claims)
	signed := b64(fmt.Appendf(nil, `{"alg":%q,"kid":%q}`, s.alg, kid)) + "." + b64(payload)
	return signed + "." + b64(s.sign([]byte(signed)))
}

func (s signer) set(t *testing.T, kid string) *Set {
	t.Helper()
	k := map[string]string{"kid": kid}
	for f, v := range s.jwk {
		k[f] = v
	}
	text, err := json.Marshal(map[string]any{"keys": []any{k}})
	require.NoError(t, err)
	set, err := Parse(text)
	require.NoError(t, err)
	return set
}

// broken flips a bit of a token's signature.
func broken(t *testing.T, token string) string {
	t.Helper()
	at := strings.LastIndexByte(token, '.') + 1
	signature, err := base64.RawURLEncoding.DecodeString(token[at:])
	require.NoError(t, err)
	signature[0] ^= 1
	return token[:at] + b64(signature)
}

func TestSignatures(t *testing.T) {
	now := time.Unix(1000, 0)
	all := signers(t)
	for i, s := range all {
		token, err := ReadToken(s.token("1", map[string]any{"iss": "a", "aud": []string{"x", "y"}, "exp": 1000, "nbf": 1000}))
		require.NoError(t, err, s.alg)
		require.Equal(t, "a", token.Issuer)
		require.NoError(t, token.Check(s.set(t, "1"), "a", []string{"y"}, now), s.alg)
		require.NoError(t, token.Check(s.set(t, ""), "", nil, now), s.alg)
		require.ErrorContains(t, token.Check(s.set(t, "2"), "", nil, now), "no key of the set", s.alg)
		require.ErrorContains(t, token.Check(nil, "", nil, now), "no key")
		require.ErrorContains(t, token.Check(s.set(t, "1"), "b", nil, now), "issuer")
		require.ErrorContains(t, token.Check(s.set(t, "1"), "", []string{"z"}, now), "audience")
		require.ErrorContains(t, token.Check(s.set(t, "1"), "", nil, now.Add(Skew+time.Second)), "expired")
		require.ErrorContains(t, token.Check(s.set(t, "1"), "", nil, now.Add(-Skew-time.Second)), "not valid yet")
		other := all[(i+2)%len(all)]
		require.ErrorContains(t, token.Check(other.set(t, "1"), "", nil, now), "no key", "%s with a key of %s", s.alg, other.alg)
		token, err = ReadToken(broken(t, s.token("1", nil)))
		require.NoError(t, err)
		require.ErrorContains(t, token.Check(s.set(t, "1"), "", nil, now), "no key of the set", s.alg)
	}
}

func TestReadToken(t *testing.T) {
	for text, want := range map[string]string{
		"a.b":                                   "does not have three parts",
		"!.e30.x":                               "cannot be read: illegal base64",
		"e30.e30.AAAA":                          "cannot be read: unexpected signature algorithm",
		b64([]byte(`{"alg":"none"}`)) + ".e30.": "cannot be read: unexpected signature algorithm",
		b64([]byte(`{"alg":"HS256"}`)) + ".W10.AAAA": "payload of the token",
		b64([]byte(`{"alg":"HS256"}`)) + ".e30.!":    "cannot be read: illegal base64",
	} {
		_, err := ReadToken(text)
		require.ErrorContains(t, err, want, text)
	}
}

// TestPublic checks that the public set has no private halves, and the same keys.
func TestPublic(t *testing.T) {
	set, err := Parse([]byte(` {"keys": [{"kty":"oct","k":"YQ","use":"sig"}, {"kty":"OKP","crv":"X25519"},
		{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"AAAA"}]}`))
	require.NoError(t, err)
	require.True(t, set.HasPrivate())
	require.Equal(t, `{"keys":[{"k":"YQ","kty":"oct","use":"sig"},{"crv":"Ed25519","kty":"OKP","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`, set.Public())
	again, err := Parse([]byte(set.Public()))
	require.NoError(t, err)
	require.False(t, again.HasPrivate())
	require.Equal(t, set.Public(), again.Public())
}

// TestKeysThatEnvoyLeavesOut checks that one broken key does not affect the others. Reasons do not quote the key.
func TestKeysThatEnvoyLeavesOut(t *testing.T) {
	const good = `{"kty":"oct","kid":"good","k":"YQ"}`
	for name, tc := range map[string]struct{ key, leftOut string }{
		"RSA without n":           {`{"kty":"RSA","e":"AQAB"}`, "keys[0] has no n or no e"},
		"RSA with an e of 17":     {`{"kty":"RSA","n":"AQAB","e":"EQ"}`, "keys[0] has an e other than 3 and 65537"},
		"RSA with alg of EC":      {`{"kty":"RSA","n":"AQAB","e":"AQAB","alg":"ES256"}`, "keys[0] has an alg for other types of keys"},
		"EC with alg of RSA":      {`{"kty":"EC","crv":"P-256","x":"AA","y":"AA","alg":"RS256"}`, "keys[0] has an alg for other types of keys"},
		"EC with another alg":     {`{"kty":"EC","crv":"P-256","x":"AA","y":"AA","alg":"ES384"}`, "keys[0] has an alg for another crv"},
		"EC without y":            {`{"kty":"EC","crv":"P-256","x":"AA"}`, "keys[0] has no valid y"},
		"EC beside the curve":     {`{"kty":"EC","crv":"P-256","x":"secret","y":"AQ"}`, "keys[0] is not a valid EC key"},
		"EC of another curve":     {`{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}`, ""},
		"OKP with alg of RSA":     {`{"kty":"OKP","crv":"Ed25519","x":"AA","alg":"RS256"}`, "keys[0] has an alg for other types of keys"},
		"OKP that is short":       {`{"kty":"OKP","crv":"Ed25519","x":"AA"}`, "keys[0] is not a valid OKP key"},
		"OKP of another curve":    {`{"kty":"OKP","crv":"X25519","x":"AA"}`, ""},
		"oct without k":           {`{"kty":"oct"}`, "keys[0] has no k"},
		"oct with alg of RSA":     {`{"kty":"oct","k":"YQ","alg":"RS256"}`, "keys[0] has an alg for other types of keys"},
		"no base64":               {`{"kty":"oct","k":"secret!"}`, "keys[0] is not a valid oct key"},
		"no kty":                  {`{"kid":"secret"}`, "keys[0] has no kty"},
		"a kty that is a number":  {`{"kty":1}`, "keys[0] has no kty"},
		"a kty of another world":  {`{"kty":"secret"}`, ""},
		"an n that is a number":   {`{"kty":"RSA","n":1,"e":"AQAB"}`, "keys[0] has no n or no e"},
		"a string":                {`"secret"`, "keys[0] is not an object"},
		"null":                    {`null`, "keys[0] is not an object"},
		"the private half of one": {`{"kty":"RSA","d":"secret"}`, "keys[0] has no n or no e"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Parse([]byte(`{"keys":[` + tc.key + `,` + good + `]}`))
			require.NoError(t, err)
			require.Equal(t, `{"keys":[{"k":"YQ","kid":"good","kty":"oct"}]}`, set.Public())
			require.Equal(t, tc.leftOut, set.LeftOut())
			require.False(t, set.HasPrivate())

			_, err = Parse([]byte(`{"keys":[` + tc.key + `]}`))
			require.ErrorIs(t, err, ErrNoKeys)
			require.ErrorContains(t, err, tc.leftOut)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestLeftOutIsShort(t *testing.T) {
	set, err := Parse([]byte(`{"keys":[1,2,3,4,5,{"kty":"oct","k":"YQ"}]}`))
	require.NoError(t, err)
	require.Equal(t, "keys[0] is not an object; keys[1] is not an object; keys[2] is not an object; and 2 more", set.LeftOut())
}

// TestKeysThatEnvoyAccepts checks forms of keys that Envoy reads, though they are not as in RFC 7518.
func TestKeysThatEnvoyAccepts(t *testing.T) {
	for _, curve := range []struct {
		alg, crv string
		elliptic.Curve
		crypto.Hash
	}{{"ES256", "P-256", elliptic.P256(), crypto.SHA256}, {"ES384", "P-384", elliptic.P384(), crypto.SHA384}, {"ES512", "P-521", elliptic.P521(), crypto.SHA512}} {
		private, point := keyWithZero(t, curve.Curve)
		size := len(point) / 2
		sign := func(b []byte) []byte {
			h := curve.New()
			h.Write(b)
			x, y, err := ecdsa.Sign(rand.Reader, private, h.Sum(nil))
			require.NoError(t, err)
			out := make([]byte, 2*size)
			x.FillBytes(out[:size])
			y.FillBytes(out[size:])
			return out
		}
		x, y := b64(point[1:1+size]), b64(point[1+size:])
		short := b64(bytes.TrimLeft(point[1:1+size], "\x00"))
		long := b64(append([]byte{0, 0}, point[1:1+size]...))
		for name, text := range map[string]string{
			"without leading zeros":       `{"kty":"EC","crv":"` + curve.crv + `","x":"` + short + `","y":"` + y + `"}`,
			"with more leading zeros":     `{"kty":"EC","crv":"` + curve.crv + `","x":"` + long + `","y":"` + y + `"}`,
			"without crv":                 `{"kty":"EC","alg":"` + curve.alg + `","x":"` + x + `","y":"` + y + `"}`,
			"with padding":                `{"kty":"EC","crv":"` + curve.crv + `","x":"` + x + `==","y":"` + y + `"}`,
			"with a kid that is a number": `{"kty":"EC","crv":"` + curve.crv + `","kid":1,"x":"` + x + `","y":"` + y + `"}`,
		} {
			t.Run(curve.crv+" "+name, func(t *testing.T) {
				set, err := Parse([]byte(`{"keys":[` + text + `]}`))
				require.NoError(t, err)
				require.Empty(t, set.LeftOut())
				token, err := ReadToken(signer{alg: curve.alg, sign: sign}.token("1", nil))
				require.NoError(t, err)
				require.NoError(t, token.Check(set, "", nil, time.Unix(0, 0)))
			})
		}
	}
}

// keyWithZero returns a key whose x begins with a zero, and its point.
func keyWithZero(t *testing.T, curve elliptic.Curve) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	for range 100_000 {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		require.NoError(t, err)
		point, err := private.PublicKey.Bytes()
		require.NoError(t, err)
		if point[1] == 0 {
			return private, point
		}
	}
	require.Fail(t, "no key with a zero")
	return nil, nil
}

func FuzzParse(f *testing.F) {
	f.Add(`{"keys": [{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, "e30.e30.e30")
	f.Add(`{"keys": [{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}]}`, "..")
	f.Fuzz(func(t *testing.T, keys, token string) {
		set, err := Parse([]byte(keys))
		if err == nil {
			again, err := Parse([]byte(set.Public()))
			require.NoError(t, err)
			require.Equal(t, set.Public(), again.Public())
		}
		if tok, err := ReadToken(token); err == nil {
			_ = tok.Check(set, "", nil, time.Now())
		}
	})
}
