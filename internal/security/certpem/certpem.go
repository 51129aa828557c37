// Package certpem decodes and encodes certificates in PEM.
package certpem

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Decode decodes all certificates of a text, and skips other content. No certificate is an error.
func Decode(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	return out, nil
}

// DecodeRoots decodes CA certificates like Decode, but leaves out those that cannot be read: Envoy and OpenSSL accept some
// that Go does not, such as those with a negative serial number. leftOut describes them; it is nil if there are none. err
// means that no certificate is left.
func DecodeRoots(text []byte) (list []*x509.Certificate, leftOut, err error) {
	var reasons []string
	n := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		n++
		if c, err := x509.ParseCertificate(block.Bytes); err != nil {
			reasons = append(reasons, fmt.Sprintf("certificate %d: %v", n, err))
		} else {
			list = append(list, c)
		}
	}
	if len(reasons) > 0 {
		leftOut = errors.New(strings.Join(reasons, "; "))
	}
	if len(list) == 0 {
		return nil, nil, cmp.Or(leftOut, errors.New("no certificate in PEM"))
	}
	return list, leftOut, nil
}

// Encode encodes certificates in order.
func Encode(list ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range list {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer does not fail
	}
	return b.Bytes()
}
