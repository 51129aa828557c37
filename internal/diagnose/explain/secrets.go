package explain

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/moonsail/moonsail/internal/model"
)

// Secret is a secret that an Envoy has by SDS, without keys.
type Secret struct {
	Name         string        `json:"name"`
	State        string        `json:"state"` // active or warming
	Version      string        `json:"version,omitempty"`
	Updated      time.Time     `json:"updated,omitzero"`
	Kind         string        `json:"kind"` // "certificate", "roots", or "other"
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Certificate is a certificate of a chain or of the roots.
type Certificate struct {
	IDs       []string  `json:"ids,omitempty"` // SPIFFE IDs and DNS names
	Subject   string    `json:"subject,omitempty"`
	Issuer    string    `json:"issuer,omitempty"`
	Serial    string    `json:"serial"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	CA        bool      `json:"ca,omitempty"`
	SHA256    string    `json:"sha256"` // of the certificate, in hexadecimal: unique
}

// secretDump is a secret in Envoy's config dump.
type secretDump struct {
	Name    string    `json:"name"`
	Version string    `json:"version_info"`
	Updated time.Time `json:"last_updated"`
	Secret  struct {
		TLS *struct {
			Chain dataSource `json:"certificate_chain"`
		} `json:"tls_certificate"`
		Validation *struct {
			Roots dataSource `json:"trusted_ca"`
		} `json:"validation_context"`
	} `json:"secret"`
}

// dataSource is Envoy's type in JSON. Bytes are in base64.
type dataSource struct {
	Bytes  []byte `json:"inline_bytes"`
	String string `json:"inline_string"`
}

func (d dataSource) pem() []byte {
	if len(d.Bytes) > 0 {
		return d.Bytes
	}
	return []byte(d.String)
}

// secret reads a secret of a dump. If it cannot be decoded, only its name is known.
func (a *Actual) secret(text json.RawMessage, state string) {
	var d secretDump
	_ = json.Unmarshal(text, &d)
	s := Secret{Name: d.Name, State: state, Version: d.Version, Updated: d.Updated, Kind: "other"}
	switch {
	case d.Secret.TLS != nil:
		s.Kind, s.Certificates = "certificate", certificates(d.Secret.TLS.Chain.pem())
	case d.Secret.Validation != nil:
		s.Kind, s.Certificates = "roots", certificates(d.Secret.Validation.Roots.pem())
	}
	a.secrets = append(a.secrets, s)
}

// credential records a secret that the control plane serves. The others come from the agent.
func (a *Actual) credential(text json.RawMessage, warming bool) {
	var d struct {
		Name   string          `json:"name"`
		Secret json.RawMessage `json:"secret"`
	}
	if json.Unmarshal(text, &d) != nil || !model.IsCredentialURL(d.Name) {
		return
	}
	at := held{"SDS", d.Name}
	if m, ok := parse(d.Secret).(*tlsv3.Secret); ok && !warming {
		a.has[at] = m
	} else {
		a.warming[at] = true
	}
}

// certificates reads the certificates of a PEM text, and skips everything else.
func certificates(text []byte) []Certificate {
	var out []Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		one := Certificate{Subject: c.Subject.String(), Issuer: c.Issuer.String(), Serial: c.SerialNumber.Text(16),
			NotBefore: c.NotBefore, NotAfter: c.NotAfter, CA: c.IsCA, IDs: c.DNSNames, SHA256: fmt.Sprintf("%x", sha256.Sum256(c.Raw))}
		for _, u := range c.URIs {
			one.IDs = append(one.IDs, u.String())
		}
		out = append(out, one)
	}
}
