package istioapi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// The fields of Secrets, in the order in which Istio looks for them.
var (
	keyPairFields = []struct{ certificate, key string }{{"cert", "key"}, {corev1.TLSCertKey, corev1.TLSPrivateKeyKey}}
	caFields      = []struct{ ca, crl string }{{"cacert", "crl"}, {"ca.crt", "ca.crl"}}
)

// Secret decodes a Secret; nil for one that cannot be a credential. What is wrong with its
// content matters only to who uses it, so that is no problem here, and nothing that is said
// of it has a part of it.
func (d Decoder) Secret(o *corev1.Secret) (*model.Secret, Problems) {
	c := d.start(model.KindSecret, &o.ObjectMeta)
	switch o.Type {
	case corev1.SecretTypeOpaque, corev1.SecretTypeTLS, corev1.SecretTypeDockerConfigJson, "":
	default:
		if !hasCredential(o) { // somebody's token: it is not even kept
			return nil, c.list
		}
	}
	out := &model.Secret{Meta: c.meta}
	out.Annotations = nil // kubectl's copy of the whole Secret may be there
	data := secretData(o)
	certificate, key, err := keyPair(data)
	if err != nil {
		out.Problem = err.Error()
	} else {
		out.Certificate, out.PrivateKey = certificate, model.NewPrivateKey(key)
	}
	if out.CA, out.CRL, err = authorities(data); err != nil {
		out.CAProblem = err.Error()
	}
	if o.Type == corev1.SecretTypeDockerConfigJson {
		out.Login = login(data)
	}
	return out, c.list
}

// Authorities decodes a ConfigMap with certificates of CAs, which is like a Secret that has no more.
func (d Decoder) Authorities(o *corev1.ConfigMap) (*model.Secret, Problems) {
	c := d.start(model.KindConfigMap, &o.ObjectMeta)
	out := &model.Secret{Meta: c.meta, Problem: "it is a ConfigMap, and keys are in Secrets"}
	var err error
	if out.CA, out.CRL, err = authorities(o.Data); err != nil {
		out.CAProblem = err.Error()
	}
	return out, c.list
}

// login is a Docker configuration that names registries; zero: there is none.
func login(data map[string]string) model.PrivateKey {
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	text := data[corev1.DockerConfigJsonKey]
	if json.Unmarshal([]byte(text), &config) != nil || len(config.Auths) == 0 {
		return model.PrivateKey{}
	}
	return model.NewPrivateKey(text)
}

func hasCredential(o *corev1.Secret) bool {
	data := secretData(o)
	for _, f := range keyPairFields {
		if data[f.certificate] != "" && data[f.key] != "" {
			return true
		}
	}
	return false
}

// secretData is what a Secret has, as the API server would see it.
func secretData(o *corev1.Secret) map[string]string {
	out := maps.Clone(o.StringData)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range o.Data {
		if _, there := out[k]; !there {
			out[k] = string(v)
		}
	}
	return out
}

func keyPair(data map[string]string) (certificate, key string, err error) {
	for _, f := range keyPairFields {
		certificate, key = data[f.certificate], data[f.key]
		if certificate == "" || key == "" {
			continue
		}
		pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
		if err != nil {
			return "", "", fmt.Errorf("its %s and %s are not a certificate and its key: %s", f.certificate, f.key, withoutContent(err))
		}
		if why := refusedKey(pair.PrivateKey); why != "" {
			return "", "", fmt.Errorf("its %s is %s; Envoy refuses it", f.key, why)
		}
		return certificate, key, nil
	}
	return "", "", fmt.Errorf("it has neither tls.crt and tls.key nor cert and key (it has %s)", fieldNames(data))
}

// minRSA is how many bits Envoy wants of an RSA key.
const minRSA = 2048

// refusedKey tells which kind of key it is that Envoy does not take; empty: it does.
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

func authorities(data map[string]string) (ca, crl string, err error) {
	for _, f := range caFields {
		if ca, crl = data[f.ca], data[f.crl]; ca == "" {
			continue
		}
		if err := checkAuthorities(ca); err != nil {
			return "", "", fmt.Errorf("its %s %w", f.ca, err)
		}
		if err := checkRevoked(crl); err != nil {
			return "", "", fmt.Errorf("its %s %w", f.crl, err)
		}
		return ca, crl, nil
	}
	return "", "", fmt.Errorf("it has neither ca.crt nor cacert (it has %s)", fieldNames(data))
}

var errNoCertificate = errors.New("has no certificate in PEM")

func checkAuthorities(text string) error {
	rest, found := []byte(text), false
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("has a %s where only certificates belong", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New("has a certificate that cannot be read: " + withoutContent(err))
		}
		found = true
	}
	if !found {
		return errNoCertificate
	}
	return nil
}

// checkRevoked checks lists of revoked certificates, one or more; empty: there are none. Envoy takes those of
// version 1, too, which crypto/x509 does not.
func checkRevoked(text string) error {
	rest := []byte(text)
	for found := text == ""; ; found = true {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil && found {
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

// fieldNames are for people: what the Secret has instead.
func fieldNames(data map[string]string) string {
	if len(data) == 0 {
		return "nothing"
	}
	names := slices.Sorted(maps.Keys(data))
	if len(names) > 4 {
		names = append(names[:4], "more")
	}
	return strings.Join(names, ", ")
}

// hideSecrets takes out of messages what they may cite of a Secret's content.
func hideSecrets(list Problems) {
	for i, p := range list {
		if strings.HasPrefix(p.Field, "data") || strings.HasPrefix(p.Field, "stringData") {
			list[i].Message = "is not what belongs there: each field of data is a string in base64, each of stringData a string"
		}
	}
}
