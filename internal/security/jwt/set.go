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
)

// MaxKeys bounds the keys of a set: each is tried for a token that names none.
const MaxKeys = 100

// Set is a JSON Web Key Set (RFC 7517).
type Set struct {
	keys    []key
	leftOut []string // why other keys of known types are not among them
}

// privateMembers lists the members of private keys. No proxy needs them.
var privateMembers = []string{"d", "p", "q", "dp", "dq", "qi", "oth"}

// ErrNoKeys reports a set without a key that can check tokens.
var ErrNoKeys = errors.New("no key can check tokens: add one of type RSA, EC, OKP (Ed25519) or oct")

// Parse reads a key set. It leaves out keys that Envoy leaves out, as RFC 7517 section 5 asks. If no key is left, the
// error is ErrNoKeys, with the reasons of LeftOut.
func Parse(text []byte) (*Set, error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("not a JSON Web Key Set, as in {\"keys\": [...]}: %w", err)
	}
	if len(document.Keys) > MaxKeys {
		return nil, fmt.Errorf("%d keys: the limit is %d", len(document.Keys), MaxKeys)
	}
	s := &Set{}
	for i, text := range document.Keys {
		k, err := parseKey(text)
		switch {
		case err == nil:
			s.keys = append(s.keys, k)
		case !errors.Is(err, errUnsupported):
			s.leftOut = append(s.leftOut, fmt.Sprintf("keys[%d] %v", i, err))
		}
	}
	switch {
	case len(s.keys) > 0:
		return s, nil
	case len(s.leftOut) > 0:
		return nil, fmt.Errorf("%w; %s", ErrNoKeys, s.LeftOut())
	}
	return nil, ErrNoKeys
}

// LeftOut returns why keys of known types are not in the set, without quoting them. It is empty if there are none.
func (s *Set) LeftOut() string {
	const most = 3
	if more := len(s.leftOut) - most; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(s.leftOut[:most], "; "), more)
	}
	return strings.Join(s.leftOut, "; ")
}

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
