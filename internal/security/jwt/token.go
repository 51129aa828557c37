package jwt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Skew is how far the clocks of issuers may be off.
const Skew = time.Minute

// algorithms lists those that Envoy's jwt_authn filter accepts.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.HS256, jose.HS384, jose.HS512, jose.EdDSA,
}

// Token is a token that can be read. Check reports whether it is valid.
type Token struct {
	Issuer  string
	Payload map[string]any
	Encoded string // the payload as it came

	jws *jose.JSONWebSignature
}

// ReadToken decodes a token, without checking its signature and its claims.
func ReadToken(text string) (*Token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errors.New("the token does not have three parts, header.payload.signature")
	}
	jws, err := jose.ParseSignedCompact(text, algorithms)
	if err != nil {
		return nil, fmt.Errorf("token cannot be read: %w", plain(err))
	}
	t := &Token{Encoded: parts[1], jws: jws}
	if err := json.Unmarshal(jws.UnsafePayloadWithoutVerification(), &t.Payload); err != nil {
		return nil, fmt.Errorf("payload of the token: %w", err)
	}
	t.Issuer, _ = t.Payload["iss"].(string)
	return t, nil
}

// ErrNotSigned reports a token that is valid but for its signature.
var ErrNotSigned = errors.New("no key of the set has signed it")

// Check returns an error with the reason if the token is not valid at a time. An empty issuer
// and empty audiences are not compared.
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
		return errors.New("it is for other audiences")
	}
	if s == nil || !s.signed(t) {
		return ErrNotSigned
	}
	return nil
}

func (t *Token) time(claim string) (time.Time, bool) {
	n, ok := t.Payload[claim].(float64)
	return time.Unix(int64(n), 0), ok
}

// Audiences returns the claim "aud", which may be one audience or a list.
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

// signed reports whether a key of the set has signed the token. A key counts unless the token
// names another key or algorithm; Envoy tries all that count.
func (s *Set) signed(t *Token) bool {
	header := t.jws.Signatures[0].Header
	return slices.ContainsFunc(s.keys, func(k key) bool {
		other := header.KeyID != "" && k.KeyID != "" && header.KeyID != k.KeyID
		if other || k.Algorithm != "" && k.Algorithm != header.Algorithm {
			return false
		}
		_, err := t.jws.Verify(k.Key)
		return err == nil
	})
}

// plain returns an error of go-jose without the library's name.
func plain(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "go-jose/go-jose: ")) }
