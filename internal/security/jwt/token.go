package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	_ "crypto/sha256" // for crypto.SHA256
	_ "crypto/sha512" // for crypto.SHA384 and SHA512
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Skew is how far the clocks of issuers may be off.
const Skew = time.Minute

// Token is a token that can be read; whether it is valid is another question.
type Token struct {
	Issuer  string
	Payload map[string]any
	Encoded string // the payload as it came

	alg, kid  string
	signed    string
	signature []byte
}

// ReadToken takes a token apart.
func ReadToken(text string) (*Token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errors.New("it does not have three parts")
	}
	var header struct{ Alg, Kid string }
	t := &Token{Encoded: parts[1], signed: parts[0] + "." + parts[1]}
	if err := unmarshal(parts[0], &header); err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	if err := unmarshal(parts[1], &t.Payload); err != nil {
		return nil, fmt.Errorf("its payload: %w", err)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return nil, fmt.Errorf("its signature: %w", err)
	}
	t.alg, t.kid, t.signature = header.Alg, header.Kid, signature
	t.Issuer, _ = t.Payload["iss"].(string)
	return t, nil
}

func unmarshal(part string, into any) error {
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// Check tells why the token is not valid at a time; nil: it is. Empty issuer and audiences
// are not compared.
func (t *Token) Check(s *Set, issuer string, audiences []string, now time.Time) error {
	if issuer != "" && t.Issuer != issuer {
		return fmt.Errorf("its issuer is %q", t.Issuer)
	}
	if until, ok := t.time("exp"); ok && now.After(until.Add(Skew)) {
		return errors.New("it has expired")
	}
	if from, ok := t.time("nbf"); ok && now.Before(from.Add(-Skew)) {
		return errors.New("it is not valid yet")
	}
	if len(audiences) > 0 && !slices.ContainsFunc(t.Audiences(), func(a string) bool { return slices.Contains(audiences, a) }) {
		return errors.New("it is not for this audience")
	}
	if s == nil || !s.signed(t) {
		return errors.New("no key has signed it")
	}
	return nil
}

func (t *Token) time(claim string) (time.Time, bool) {
	n, ok := t.Payload[claim].(float64)
	return time.Unix(int64(n), 0), ok
}

// Audiences is the claim "aud", which may be one or a list.
func (t *Token) Audiences() []string {
	switch aud := t.Payload["aud"].(type) {
	case string:
		return []string{aud}
	case []any:
		var out []string
		for _, a := range aud {
			if s, ok := a.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// signed tells whether a key of the set has signed the token: the one that it names, where
// it names one that has a name.
func (s *Set) signed(t *Token) bool {
	return slices.ContainsFunc(s.keys, func(k key) bool {
		named := t.kid != "" && k.ID != "" && t.kid != k.ID
		return !named && (k.Alg == "" || k.Alg == t.alg) && k.verifies(t)
	})
}

var hashes = map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}

func (k *key) verifies(t *Token) bool {
	if p, ok := k.public.(ed25519.PublicKey); ok {
		return t.alg == "EdDSA" && ed25519.Verify(p, []byte(t.signed), t.signature)
	}
	if len(t.alg) != 5 {
		return false
	}
	hash, family := hashes[t.alg[2:]], t.alg[:2]
	if hash == 0 {
		return false
	}
	sum := hash.New()
	sum.Write([]byte(t.signed))
	digest := sum.Sum(nil)
	switch p := k.public.(type) {
	case *rsa.PublicKey:
		return family == "RS" && rsa.VerifyPKCS1v15(p, hash, digest, t.signature) == nil ||
			family == "PS" && rsa.VerifyPSS(p, hash, digest, t.signature, nil) == nil
	case *ecdsa.PublicKey:
		return family == "ES" && verifiesEC(p, digest, t.signature)
	case []byte:
		mac := hmac.New(hash.New, p)
		mac.Write([]byte(t.signed))
		return family == "HS" && hmac.Equal(mac.Sum(nil), t.signature)
	}
	return false
}

// verifiesEC takes the two numbers of a signature one after the other.
func verifiesEC(p *ecdsa.PublicKey, digest, signature []byte) bool {
	size := (p.Curve.Params().BitSize + 7) / 8
	if len(signature) != 2*size {
		return false
	}
	r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])
	return ecdsa.Verify(p, digest, r, s)
}
