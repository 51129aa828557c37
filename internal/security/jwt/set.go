// Package jwt reads JSON Web Key Sets and checks tokens against them, as Envoy's jwt_authn
// filter does. It is pure. Keys and signatures are go-jose's work; this package adds what Envoy
// does differently: which keys of a set count, and which claims are compared.
package jwt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// MaxKeys bounds the keys of a set: each is tried for a token that names none.
const MaxKeys = 100

// Set is a JSON Web Key Set (RFC 7517).
type Set struct {
	keys []key
}

// key is one key of a set.
type key struct {
	jose.JSONWebKey
	members map[string]json.RawMessage // as given, without the private half
	private bool                       // it came with its private half
}

var (
	// verifying lists the members of a key that checking a signature takes (RFC 7518 section 6, RFC 8037).
	// Envoy reads no others, so an error in one of those, such as a broken x5c, does not matter.
	verifying = []string{"kty", "kid", "alg", "crv", "n", "e", "x", "y", "k"}
	// privateMembers lists the members of private keys. No proxy needs them.
	privateMembers = []string{"d", "p", "q", "dp", "dq", "qi", "oth"}
	// types lists the key types that Envoy checks tokens with.
	types = []string{"RSA", "EC", "OKP", "oct"}
)

// ErrNoKeys reports a set without a key that can check tokens.
var ErrNoKeys = errors.New("no key can check tokens: add one of type RSA, EC, OKP (Ed25519) or oct")

// Parse reads a key set. It leaves out keys of unknown types and curves, as RFC 7517 section 5 asks.
// A key of a known type must be complete.
func Parse(text []byte) (*Set, error) {
	var document struct {
		Keys []map[string]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("not a JSON Web Key Set, as in {\"keys\": [...]}: %w", err)
	}
	if len(document.Keys) > MaxKeys {
		return nil, fmt.Errorf("%d keys: the limit is %d", len(document.Keys), MaxKeys)
	}
	s := &Set{}
	for i, members := range document.Keys {
		k, err := parseKey(members)
		if errors.Is(err, jose.ErrUnsupportedKeyType) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		s.keys = append(s.keys, k)
	}
	if len(s.keys) == 0 {
		return nil, ErrNoKeys
	}
	return s, nil
}

func parseKey(members map[string]json.RawMessage) (key, error) {
	k := key{members: map[string]json.RawMessage{}}
	for name, value := range members {
		if slices.Contains(privateMembers, name) {
			k.private = true
			continue
		}
		k.members[name] = value
	}
	public := map[string]string{}
	for _, name := range verifying {
		value, ok := k.members[name]
		if !ok {
			continue
		}
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return k, fmt.Errorf("%s: %w", name, err)
		}
		public[name] = strings.TrimRight(text, "=") // some issuers pad base64
	}
	if kty := public["kty"]; kty != "" && !slices.Contains(types, kty) {
		return k, jose.ErrUnsupportedKeyType
	}
	text, err := json.Marshal(public)
	if err != nil {
		return k, err
	}
	if err := k.UnmarshalJSON(text); errors.Is(err, jose.ErrUnsupportedKeyType) {
		return k, err
	} else if err != nil {
		return k, plain(err)
	}
	if secret, ok := k.Key.([]byte); ok {
		if len(secret) == 0 {
			return k, errors.New("k: missing")
		}
		// Envoy accepts secrets of any length, go-jose only those as long as the hash. HMAC itself pads a short one
		// with zeros to the hash's block, which has at least 64 bytes.
		k.Key = append(secret, make([]byte, max(0, 64-len(secret)))...)
	}
	return k, nil
}

// plain returns an error of go-jose without the library's name.
func plain(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "go-jose/go-jose: ")) }

// HasPrivate reports whether a key came with its private half.
func (s *Set) HasPrivate() bool {
	return slices.ContainsFunc(s.keys, func(k key) bool { return k.private })
}

// Public returns the set as JSON, without private halves and white space. Equal keys in the
// same order give equal text.
func (s *Set) Public() string {
	list := make([]map[string]json.RawMessage, len(s.keys))
	for i, k := range s.keys {
		list[i] = k.members
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]any{"keys": list}); err != nil {
		return "" // unreachable: the members were read from JSON
	}
	return strings.TrimSuffix(out.String(), "\n")
}
