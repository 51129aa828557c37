package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/config/certfile"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// caField names a field with certificates of CAs, and the one with the list of revoked certificates.
type caField struct{ ca, crl string }

// stapleField has an OCSP response. As in Istio, it is beside tls.crt only.
const stapleField = "tls.ocsp-staple"

// The fields of Secrets, in the order in which Istio looks for them.
var (
	keyPairFields = []struct{ certificate, key, staple string }{{"cert", "key", ""}, {corev1.TLSCertKey, corev1.TLSPrivateKeyKey, stapleField}}
	caFields      = []caField{{"cacert", "crl"}, {"ca.crt", "ca.crl"}}
)

// Secret decodes a Secret. It returns nil if the Secret cannot be a credential. Invalid content is reported where
// the Secret is used, not here. No message contains a part of the content.
func Secret(in convert.Cluster, o *corev1.Secret) (*model.Secret, problem.List) {
	c := start(in, model.KindSecret, &o.ObjectMeta)
	if o.Labels[model.LabelRemoteCluster] == "true" {
		c.Warnf(code.NotSupported, problem.Path("metadata.labels").Key(model.LabelRemoteCluster), "has no effect: the mesh has one cluster, so services have no endpoints of the remote one; remove it")
	}
	switch o.Type {
	case corev1.SecretTypeOpaque, corev1.SecretTypeTLS, corev1.SecretTypeDockerConfigJson, "":
	default:
		if !hasCredential(o) { // another kind of token, which is not kept
			return nil, c.Problems
		}
	}
	out := &model.Secret{Meta: c.Meta}
	out.Annotations = nil // kubectl's copy of the whole Secret may be there
	data := secretData(o)
	keyPair(out, data)
	authorities(out, data)
	if o.Type == corev1.SecretTypeDockerConfigJson {
		out.Login = login(data)
	}
	return out, c.Problems
}

// HasAuthorities reports whether a ConfigMap has certificates of CAs.
func HasAuthorities(o *corev1.ConfigMap) bool {
	return slices.ContainsFunc(caFields, func(f caField) bool { return o.Data[f.ca] != "" })
}

// Authorities decodes a ConfigMap with certificates of CAs, which is like a Secret that has no more.
func Authorities(in convert.Cluster, o *corev1.ConfigMap) (*model.Secret, problem.List) {
	c := start(in, model.KindConfigMap, &o.ObjectMeta)
	out := &model.Secret{Meta: c.Meta, Problem: "it is a ConfigMap, and keys are in Secrets"}
	authorities(out, o.Data)
	return out, c.Problems
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

// keyPair decodes a certificate, its key and its OCSP response.
func keyPair(out *model.Secret, data map[string]string) {
	for _, f := range keyPairFields {
		certificate, key := data[f.certificate], data[f.key]
		if certificate == "" || key == "" {
			continue
		}
		switch refused, err := certfile.CheckPair([]byte(certificate), []byte(key)); {
		case err != nil:
			out.Problem = fmt.Sprintf("its %s and %s are not a certificate and its key: %v", f.certificate, f.key, err)
		case refused != "":
			out.Problem = fmt.Sprintf("its %s is %s; Envoy refuses it", f.key, refused)
		default:
			out.Certificate, out.PrivateKey = certificate, model.NewPrivateKey(key)
			setStaple(out, data[f.staple])
		}
		return
	}
	out.Problem = missingPair(data)
}

// missingPair returns which part of the certificate or its key is missing or empty.
func missingPair(data map[string]string) string {
	for _, f := range keyPairFields {
		var empty, missing []string
		for _, name := range []string{f.certificate, f.key} {
			if value, there := data[name]; !there {
				missing = append(missing, name)
			} else if value == "" {
				empty = append(empty, name)
			}
		}
		switch {
		case len(empty) == 2:
			return fmt.Sprintf("its %s are empty", strings.Join(empty, " and "))
		case len(empty) == 1:
			return fmt.Sprintf("its %s is empty", empty[0])
		case len(missing) == 1:
			return fmt.Sprintf("it has no %s (it has %s)", missing[0], fieldNames(data))
		}
	}
	return fmt.Sprintf("it has neither tls.crt and tls.key nor cert and key (it has %s)", fieldNames(data))
}

// setStaple sets an OCSP response, unless Envoy would refuse the certificate with it.
func setStaple(out *model.Secret, staple string) {
	if staple == "" {
		return
	}
	if err := certfile.CheckStaple([]byte(out.Certificate), []byte(staple)); err != nil {
		out.StapleProblem = fmt.Sprintf("its %s %v", stapleField, err)
		return
	}
	out.OCSPStaple = staple
}

// authorities decodes the certificates of CAs.
func authorities(out *model.Secret, data map[string]string) {
	for _, f := range caFields {
		if data[f.ca] == "" {
			continue
		}
		kept, leftOut, err := certfile.Authorities([]byte(data[f.ca]))
		if err != nil {
			out.CAProblem = fmt.Sprintf("its %s %v", f.ca, err)
			return
		}
		crl := data[f.crl]
		if crl != "" {
			if err := certfile.CheckRevoked([]byte(crl)); err != nil {
				out.CAProblem = fmt.Sprintf("its %s %v", f.crl, err)
				return
			}
		}
		if leftOut != "" {
			out.CALeftOut = fmt.Sprintf("its %s %s", f.ca, leftOut)
		}
		out.CA, out.CRL = string(kept), crl
		return
	}
	for _, f := range caFields {
		if _, there := data[f.ca]; there {
			out.CAProblem = fmt.Sprintf("its %s is empty", f.ca)
			return
		}
	}
	out.CAProblem = fmt.Sprintf("it has neither ca.crt nor cacert (it has %s)", fieldNames(data))
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

// HideSecrets takes out of messages what they may cite of a Secret's content.
func HideSecrets(list problem.List) {
	for i, p := range list {
		if strings.HasPrefix(p.Field, "data") || strings.HasPrefix(p.Field, "stringData") {
			list[i].Message = "has the wrong form: each field of data is a string in base64, each of stringData a string"
		}
	}
}
