package certfile

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// No error of these checks has a part of what was checked.

// CheckPair checks a certificate with its chain and its key, in PEM. refused is set if they belong together, but the key is of
// a kind that Envoy does not accept.
func CheckPair(certificate, key []byte) (refused string, err error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return "", errors.New(withoutContent(err))
	}
	return refusedKey(pair.PrivateKey), nil
}

// minRSA is how many bits Envoy wants of an RSA key.
const minRSA = 2048

// refusedKey describes a key that Envoy does not accept; empty: it does.
func refusedKey(key crypto.PrivateKey) string {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if n := k.N.BitLen(); n < minRSA {
			return fmt.Sprintf("an RSA key of %d bits, and not of %d or more", n, minRSA)
		}
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P224() {
			return "an ECDSA key on the curve P-224, and not on P-256, P-384 or P-521"
		}
	}
	return ""
}

// withoutContent is an error of crypto/tls, which names what it expected; some of crypto/x509
// cite what they found.
func withoutContent(err error) string {
	msg := strings.TrimPrefix(err.Error(), "tls: ")
	if i := strings.IndexAny(msg, `"'`); i >= 0 {
		msg = msg[:i] + "..."
	}
	return msg
}

// Authorities returns the certificates of CAs in a PEM text. Those that cannot be read, and keys, are left out: clients
// and servers under the others are still verified, as in Istio. leftOut describes them; it is empty if there are none. An
// error means that no certificate is left, or that the text has a list of revoked certificates, without which the others
// would be trusted more than they are meant to be.
func Authorities(text []byte) (kept []byte, leftOut string, err error) {
	var reasons []string
	for n, rest := 1, text; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch _, err := x509.ParseCertificate(block.Bytes); {
		case block.Type == "X509 CRL":
			return nil, "", errors.New("has a list of revoked certificates where only certificates belong")
		case block.Type != "CERTIFICATE":
			reasons = append(reasons, fmt.Sprintf("has a %s where only certificates belong", block.Type))
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("has a certificate that cannot be read (number %d): %s", n, withoutContent(err)))
		default:
			kept = append(kept, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	leftOut = strings.Join(reasons, "; ")
	switch {
	case len(kept) == 0:
		return nil, "", errors.New(cmp.Or(leftOut, "has no certificate in PEM"))
	case leftOut == "":
		return text, "", nil
	}
	return kept, leftOut, nil
}

// CheckRevoked checks lists of revoked certificates, one or more. Envoy takes those of
// version 1, too, which crypto/x509 does not.
func CheckRevoked(text []byte) error {
	for found := false; ; found = true {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil && found {
			return nil
		}
		if block == nil || block.Type != "X509 CRL" {
			return errors.New("is not a list of revoked certificates in PEM")
		}
		if _, err := asn1.Unmarshal(block.Bytes, &pkix.CertificateList{}); err != nil {
			return errors.New("has a list of revoked certificates that cannot be read")
		}
	}
}
