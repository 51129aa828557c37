package jwt

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// key is one key of a set.
type key struct {
	jose.JSONWebKey
	members map[string]json.RawMessage // as given, without the private half
	private bool                       // it came with its private half
}

// verifying lists the members of a key that checking a signature takes (RFC 7518 section 6, RFC 8037).
// Envoy reads no others, so an error in one of those, such as a broken x5c, does not matter.
var verifying = []string{"kty", "kid", "alg", "crv", "n", "e", "x", "y", "k"}

// errUnsupported reports a key of a type or curve with which Envoy checks no tokens.
var errUnsupported = errors.New("its type or curve is not supported")

// parseKey returns an error for keys that Envoy leaves out. Errors do not quote the key.
func parseKey(text json.RawMessage) (key, error) {
	k := key{members: map[string]json.RawMessage{}}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return k, errors.New("is not an object")
	}
	for name, value := range members {
		if slices.Contains(privateMembers, name) {
			k.private = true
			continue
		}
		k.members[name] = value
	}
	public := map[string]string{}
	for _, name := range verifying {
		var text string
		if json.Unmarshal(k.members[name], &text) == nil { // Envoy ignores a kid or alg that is not a string
			public[name] = strings.TrimRight(text, "=") // some issuers pad base64
		}
	}
	if err := normalize(public); err != nil {
		return k, err
	}
	normal, err := json.Marshal(public)
	if err != nil {
		return k, err
	}
	if k.UnmarshalJSON(normal) != nil {
		return k, fmt.Errorf("is not a valid %s key", public["kty"])
	}
	if secret, ok := k.Key.([]byte); ok {
		// Envoy accepts secrets of any length, go-jose only those as long as the hash. HMAC itself pads a short one
		// with zeros to the hash's block, which has at least 64 bytes.
		k.Key = append(secret, make([]byte, max(0, 64-len(secret)))...)
	}
	return k, nil
}

// normalize writes a key that Envoy accepts in the form that go-jose demands.
func normalize(k map[string]string) error {
	switch alg := k["alg"]; k["kty"] {
	case "":
		return errors.New("has no kty")
	case "RSA":
		return checkRSA(k, alg)
	case "EC":
		return normalizeEC(k, alg)
	case "OKP":
		switch {
		case k["crv"] != "Ed25519":
			return errUnsupported
		case alg != "" && alg != "EdDSA":
			return errOtherType
		}
		return nil
	case "oct":
		switch {
		case alg != "" && alg != "HS256" && alg != "HS384" && alg != "HS512":
			return errOtherType
		case k["k"] == "":
			return errors.New("has no k")
		}
		return nil
	}
	return errUnsupported
}

var errOtherType = errors.New("has an alg for other types of keys")

func checkRSA(k map[string]string, alg string) error {
	if alg != "" && !strings.HasPrefix(alg, "RS") && !strings.HasPrefix(alg, "PS") {
		return errOtherType
	}
	if k["n"] == "" || k["e"] == "" {
		return errors.New("has no n or no e")
	}
	e, err := base64.RawURLEncoding.DecodeString(k["e"])
	if e = bytes.TrimLeft(e, "\x00"); err != nil || !bytes.Equal(e, []byte{3}) && !bytes.Equal(e, []byte{1, 0, 1}) {
		return errors.New("has an e other than 3 and 65537")
	}
	return nil
}

var (
	// coordinates lists the curves that Envoy supports, with the bytes of a coordinate.
	coordinates = map[string]int{"P-256": 32, "P-384": 48, "P-521": 66}
	// curves are those of algorithms. P-256 is the default.
	curves = map[string]string{"": "P-256", "ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
)

func normalizeEC(k map[string]string, alg string) error {
	k["crv"] = cmp.Or(k["crv"], curves[alg])
	size := coordinates[k["crv"]]
	switch {
	case alg != "" && !strings.HasPrefix(alg, "ES"):
		return errOtherType
	case size == 0:
		return errUnsupported
	case alg != "" && curves[alg] != k["crv"]:
		return errors.New("has an alg for another crv")
	}
	return cmp.Or(pad(k, "x", size), pad(k, "y", size))
}

// pad writes a coordinate with all its bytes. Some issuers leave out leading zeros.
func pad(k map[string]string, name string, size int) error {
	value, err := base64.RawURLEncoding.DecodeString(k[name])
	value = bytes.TrimLeft(value, "\x00")
	if err != nil || k[name] == "" || len(value) > size {
		return fmt.Errorf("has no valid %s", name)
	}
	k[name] = base64.RawURLEncoding.EncodeToString(append(make([]byte, size-len(value)), value...))
	return nil
}
