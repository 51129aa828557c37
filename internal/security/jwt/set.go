// Package jwt reads JSON Web Key Sets and checks tokens against them, as Envoy's jwt_authn
// filter does. It is pure.
package jwt

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// MaxKeys bounds the keys of a set: each is tried for a token that names none.
const MaxKeys = 100

// Set is a JSON Web Key Set (RFC 7517).
type Set struct {
	keys []key
}

// key is one key of a set.
type key struct {
	Type  string `json:"kty"`
	ID    string `json:"kid"`
	Alg   string `json:"alg"`
	Curve string `json:"crv"`
	N     string `json:"n"`
	E     string `json:"e"`
	X     string `json:"x"`
	Y     string `json:"y"`
	K     string `json:"k"`

	public any               // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey or []byte
	fields map[string]rawKey // all that was given
}

type rawKey = json.RawMessage

// privateFields are those of private keys, which nobody needs to check tokens.
var privateFields = []string{"d", "p", "q", "dp", "dq", "qi", "oth"}

// ErrNoKeys is of sets that no token can be checked with.
var ErrNoKeys = errors.New("it has no key of a kind that can check tokens: RSA, EC, OKP (Ed25519) or oct")

// Parse reads a key set. Keys of kinds that nobody knows are left out, but a known one must be
// complete.
func Parse(text []byte) (*Set, error) {
	var document struct {
		Keys []map[string]rawKey `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("it is not a JSON Web Key Set, as in {\"keys\": [...]}: %w", err)
	}
	if len(document.Keys) > MaxKeys {
		return nil, fmt.Errorf("it has %d keys; %d is the limit", len(document.Keys), MaxKeys)
	}
	s := &Set{}
	for i, fields := range document.Keys {
		k, err := parseKey(fields)
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if k.public != nil {
			s.keys = append(s.keys, k)
		}
	}
	if len(s.keys) == 0 {
		return nil, ErrNoKeys
	}
	return s, nil
}

func parseKey(fields map[string]rawKey) (key, error) {
	k := key{fields: fields}
	text, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return k, err
	}
	switch k.Type {
	case "":
		return k, errors.New("kty is missing")
	case "RSA":
		k.public, err = k.rsa()
	case "EC":
		k.public, err = k.ec()
	case "OKP":
		k.public, err = k.okp()
	case "oct":
		k.public, err = decode("k", k.K)
	}
	return k, err
}

// decode is base64url, with or without padding.
func decode(field, s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err == nil && len(b) == 0 {
		err = errors.New("it is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return b, nil
}

func (k *key) rsa() (any, error) {
	n, err := decode("n", k.N)
	if err != nil {
		return nil, err
	}
	e, err := decode("e", k.E)
	if err != nil {
		return nil, err
	}
	exponent := new(big.Int).SetBytes(e)
	if !exponent.IsInt64() || exponent.Int64() > 1<<31-1 {
		return nil, errors.New("e: it is too large")
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}, nil
}

var curves = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}

// ec leaves out curves that nobody knows.
func (k *key) ec() (any, error) {
	curve := curves[k.Curve]
	if curve == nil {
		return nil, nil
	}
	x, err := decode("x", k.X)
	if err != nil {
		return nil, err
	}
	y, err := decode("y", k.Y)
	if err != nil {
		return nil, err
	}
	size := (curve.Params().BitSize + 7) / 8
	if len(x) > size || len(y) > size {
		return nil, fmt.Errorf("x, y: they are longer than a point of %s", k.Curve)
	}
	point := make([]byte, 1+2*size)
	point[0] = 4 // uncompressed
	new(big.Int).SetBytes(x).FillBytes(point[1 : 1+size])
	new(big.Int).SetBytes(y).FillBytes(point[1+size:])
	p, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, fmt.Errorf("x, y: %w", err)
	}
	return p, nil
}

func (k *key) okp() (any, error) {
	if k.Curve != "Ed25519" {
		return nil, nil
	}
	x, err := decode("x", k.X)
	if err == nil && len(x) != ed25519.PublicKeySize {
		err = fmt.Errorf("x: it has %d bytes, not %d", len(x), ed25519.PublicKeySize)
	}
	if err != nil {
		return nil, err
	}
	return ed25519.PublicKey(x), nil
}

// HasPrivate tells whether a key came with its private half.
func (s *Set) HasPrivate() bool {
	for _, k := range s.keys {
		for _, f := range privateFields {
			if k.fields[f] != nil {
				return true
			}
		}
	}
	return false
}

// Public is the set as JSON, without private halves and white space, and the same for the
// same keys in the same order.
func (s *Set) Public() string {
	list := make([]map[string]rawKey, len(s.keys))
	for i, k := range s.keys {
		list[i] = map[string]rawKey{}
		for f, v := range k.fields {
			list[i][f] = v
		}
		for _, f := range privateFields {
			delete(list[i], f)
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]any{"keys": list}); err != nil {
		return "" // it was read from JSON
	}
	return strings.TrimSuffix(out.String(), "\n")
}
