package sds

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/moonsail/moonsail/internal/config/certfile"
)

// maxFile is the largest size of a file with certificates, in bytes.
const maxFile = 4 << 20

// systemRoots are the paths of the roots on Debian and Alpine, Fedora, SUSE, and others.
var systemRoots = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// pathsOf returns the files of a secret, exactly those in its name.
func pathsOf(s certfile.Secret) []string {
	switch {
	case s.CAs == "":
		return []string{s.Certificate, s.Key}
	case s.Revoked == "":
		return []string{rootsPath(s.CAs)}
	}
	return []string{rootsPath(s.CAs), s.Revoked}
}

func rootsPath(cas string) string {
	if cas != certfile.System {
		return cas
	}
	for _, path := range systemRoots {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return systemRoots[0]
}

// readSecret reads the files of a secret, and refuses what Envoy would refuse. leftOut describes certificates of CAs that
// cannot be read. Errors contain no part of a file.
func readSecret(name string, s certfile.Secret) (secret *tlsv3.Secret, leftOut string, err error) {
	var content [2][]byte
	for i, path := range pathsOf(s) {
		if content[i], err = readFile(path); err != nil {
			return nil, "", err
		}
	}
	if s.CAs == "" {
		secret, err = pairSecret(name, s, content[0], content[1])
		return secret, "", err
	}
	return rootsSecret(name, s, content[0], content[1])
}

func pairSecret(name string, s certfile.Secret, certificate, key []byte) (*tlsv3.Secret, error) {
	refused, err := certfile.CheckPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: not a certificate and its key: %w", s.Certificate, s.Key, err)
	}
	if refused != "" {
		return nil, fmt.Errorf("%s: %s, which Envoy refuses", s.Key, refused)
	}
	return certificateSecret(name, certificate, key), nil
}

func rootsSecret(name string, s certfile.Secret, cas, revoked []byte) (secret *tlsv3.Secret, leftOut string, err error) {
	// The system's roots may have certificates that only Envoy can parse.
	if s.CAs == certfile.System && !bytes.Contains(cas, []byte("-----BEGIN CERTIFICATE-----")) {
		return nil, "", fmt.Errorf("%s: no certificate in PEM", rootsPath(s.CAs))
	}
	if s.CAs != certfile.System {
		if cas, leftOut, err = certfile.Authorities(cas); err != nil {
			return nil, "", fmt.Errorf("%s %w", s.CAs, err)
		}
	}
	out := rootSecret(name, cas)
	if s.Revoked == "" {
		return out, leftOut, nil
	}
	if err := certfile.CheckRevoked(revoked); err != nil {
		return nil, "", fmt.Errorf("%s %w", s.Revoked, err)
	}
	out.GetValidationContext().Crl = inline(revoked)
	return out, leftOut, nil
}

// readFile reads a regular file. A device might have no end.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a file", path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxFile:
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	case len(content) == 0:
		return nil, fmt.Errorf("%s: empty", path)
	}
	return content, nil
}

// expiryOf returns the first expiry of a secret's certificates; of a chain that of its leaf. Zero: unknown.
func expiryOf(s *tlsv3.Secret) (first time.Time) {
	text := s.GetTlsCertificate().GetCertificateChain().GetInlineBytes()
	leaf := text != nil
	if !leaf {
		text = s.GetValidationContext().GetTrustedCa().GetInlineBytes()
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return first
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first.IsZero() || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
		if leaf {
			return first
		}
	}
}

// stamp identifies the version of a file without its content.
type stamp struct {
	info os.FileInfo
	none bool
}

func stampsOf(paths []string) []stamp {
	out := make([]stamp, len(paths))
	for i, path := range paths {
		info, err := os.Stat(path)
		out[i] = stamp{info, errors.Is(err, os.ErrNotExist)}
	}
	return out
}

func (s stamp) same(other stamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil && s.none == other.none
	}
	return os.SameFile(s.info, other.info) && s.info.ModTime().Equal(other.info.ModTime()) && s.info.Size() == other.info.Size()
}
