package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/model"
)

// pairPEM is a certificate that has signed itself, and its key.
func pairPEM(t *testing.T) (certificate, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return pairOf(t, k)
}

func pairOf(t *testing.T, k crypto.Signer) (certificate, key string) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// revoked is a list of revoked certificates.
func revoked(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(7), RevocationTime: time.Now()}},
	}, &x509.Certificate{KeyUsage: x509.KeyUsageCRLSign, SubjectKeyId: []byte{1}}, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

func secretWith(data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "api", Namespace: "shop"}, StringData: data}
}

func TestSecrets(t *testing.T) {
	cert, key := pairPEM(t)
	_, other := pairPEM(t)
	short, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // Envoy refuses it
	require.NoError(t, err)
	shortCert, shortKey := pairOf(t, short)
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	longCert, longKey := pairOf(t, long)
	odd, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	require.NoError(t, err)
	oddCert, oddKey := pairOf(t, odd)
	crl := revoked(t)
	for name, tc := range map[string]struct {
		data               map[string]string
		problem, caProblem string
	}{
		"Kubernetes' fields":       {map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": cert, "ca.crl": crl}, "", ""},
		"Istio's fields":           {map[string]string{"cert": cert, "key": key, "cacert": cert}, "", ""},
		"CAs alone":                {map[string]string{"ca.crt": cert + cert}, "it has neither tls.crt and tls.key", ""},
		"a key alone":              {map[string]string{"tls.key": key}, "it has no tls.crt (it has tls.key)", "neither ca.crt nor cacert"},
		"another's key":            {map[string]string{"tls.crt": cert, "tls.key": other}, "its tls.crt and tls.key are not a certificate and its key", "neither"},
		"a short RSA key":          {map[string]string{"tls.crt": shortCert, "tls.key": shortKey}, "its tls.key is an RSA key of 1024 bits, and not of 2048 or more; Envoy refuses it", "neither"},
		"a long RSA key":           {map[string]string{"tls.crt": longCert, "tls.key": longKey}, "", "neither"},
		"another curve":            {map[string]string{"cert": oddCert, "key": oddKey}, "its key is an ECDSA key on the curve P-224", "neither"},
		"no PEM":                   {map[string]string{"cert": "hunter2", "key": "hunter2", "cacert": "hunter2"}, "its cert and key are not", "its cacert has no certificate in PEM"},
		"a key where CAs belong":   {map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": key}, "", "its ca.crt has a PRIVATE KEY where only certificates belong"},
		"a broken CA among others": {map[string]string{"ca.crt": cert + "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n" + cert}, "neither", ""},
		"a key beside CAs":         {map[string]string{"ca.crt": key + cert}, "neither", ""},
		"a list beside CAs":        {map[string]string{"ca.crt": cert + crl}, "neither", "its ca.crt has a list of revoked certificates where only certificates belong"},
		"a broken CA":              {map[string]string{"ca.crt": "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"}, "neither", "cannot be read"},
		"no list of revoked ones":  {map[string]string{"ca.crt": cert, "ca.crl": "hunter2"}, "neither", "its ca.crl is not a list"},
		"lists of revoked ones":    {map[string]string{"ca.crt": cert, "ca.crl": crl + crl}, "neither", ""},
		"a list that is broken":    {map[string]string{"ca.crt": cert, "ca.crl": "-----BEGIN X509 CRL-----\nMA==\n-----END X509 CRL-----\n"}, "neither", "its ca.crl has a list of revoked certificates that cannot be read"},
		"a broken one behind":      {map[string]string{"cacert": cert, "crl": crl + "-----BEGIN X509 CRL-----\nMA==\n-----END X509 CRL-----\n"}, "neither", "its crl has a list of revoked certificates that cannot be read"},
		"a certificate for a list": {map[string]string{"ca.crt": cert, "ca.crl": crl + cert}, "neither", "its ca.crl is not a list"},
		"empty fields":             {map[string]string{"tls.crt": "", "tls.key": "", "ca.crt": ""}, "its tls.crt and tls.key are empty", "its ca.crt is empty"},
		"an empty key":             {map[string]string{"tls.crt": cert, "tls.key": ""}, "its tls.key is empty", "neither"},
		"nothing":                  {nil, "(it has nothing)", "(it has nothing)"},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := kube.Secret(Decoder{}.cluster(), secretWith(tc.data))
			require.Empty(t, problems)
			require.Contains(t, s.Problem, tc.problem)
			require.Contains(t, s.CAProblem, tc.caProblem)
			require.Equal(t, tc.problem == "", s.Problem == "")
			require.Equal(t, tc.caProblem == "", s.CAProblem == "")
			require.Equal(t, tc.problem == "", s.PrivateKey.PEM() != "")
			require.Equal(t, tc.caProblem == "", s.CA != "")
			requireHidden(t, s, key, other, "hunter2")
		})
	}
}

// TestCAsThatAreLeftOut checks that one certificate which cannot be read does not affect the others, and that keys are not
// kept.
func TestCAsThatAreLeftOut(t *testing.T) {
	cert, key := pairPEM(t)
	const broken = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
	for name, tc := range map[string]struct{ text, ca, leftOut string }{
		"none":           {"# roots\n" + cert, "# roots\n" + cert, ""},
		"a broken one":   {cert + broken + cert, cert + cert, "its ca.crt has a certificate that cannot be read (number 2): x509: malformed certificate"},
		"a key":          {key + cert, cert, "its ca.crt has a PRIVATE KEY where only certificates belong"},
		"a key and more": {broken + key + cert, cert, "its ca.crt has a certificate that cannot be read (number 1): x509: malformed certificate; has a PRIVATE KEY where only certificates belong"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := kube.Secret(Decoder{}.cluster(), secretWith(map[string]string{"ca.crt": tc.text}))
			require.Empty(t, s.CAProblem)
			require.Equal(t, tc.ca, s.CA)
			require.Equal(t, tc.leftOut, s.CALeftOut)
		})
	}
}

// TestStaples checks that an OCSP response is kept if Envoy accepts it, and that another one does not affect the key.
func TestStaples(t *testing.T) {
	cert, key := pairPEM(t)
	text, err := os.ReadFile("certfile/testdata/staple.der") // for the same serial number
	require.NoError(t, err)
	staple := string(text)
	for name, tc := range map[string]struct {
		data    map[string]string
		kept    string
		problem string
	}{
		"beside tls.crt": {map[string]string{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": staple}, staple, ""},
		"beside cert":    {map[string]string{"cert": cert, "key": key, "tls.ocsp-staple": staple}, "", ""},
		"none":           {map[string]string{"tls.crt": cert, "tls.key": key}, "", ""},
		"broken":         {map[string]string{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": "x"}, "", "its tls.ocsp-staple is not an OCSP response in DER"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := kube.Secret(Decoder{}.cluster(), secretWith(tc.data))
			require.Empty(t, s.Problem)
			require.Equal(t, cert, s.Certificate)
			require.Equal(t, tc.kept, s.OCSPStaple)
			require.Equal(t, tc.problem, s.StapleProblem)
		})
	}
}

// requireHidden: whatever an object is written with, a key is not part of it.
func requireHidden(t *testing.T, s *model.Secret, secrets ...string) {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("a secret", "key", s.PrivateKey, "secret", s)
	for _, shown := range []string{string(text), fmt.Sprint(s), fmt.Sprintf("%+v", *s), fmt.Sprintf("%#v", s), log.String()} {
		for _, secret := range secrets {
			require.NotContains(t, shown, strings.Split(strings.TrimPrefix(secret, "-----BEGIN PRIVATE KEY-----\n"), "\n")[0])
		}
	}
}

// TestAuthoritiesOfConfigMaps checks that ConfigMaps with certificates are read, and others with their problem if an object
// names them. The mesh's ConfigMap has no CAs.
func TestAuthoritiesOfConfigMaps(t *testing.T) {
	cert, key := pairPEM(t)
	configMap := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Data: data}
	}
	for _, field := range []string{"ca.crt", "cacert"} {
		o, problems := Decoder{}.FromTyped(configMap("roots", map[string]string{field: cert}))
		require.Empty(t, problems)
		s := o.(*model.Secret)
		require.Equal(t, model.Key{Kind: model.KindConfigMap, Namespace: "shop", Name: "roots"}, s.Key)
		require.Equal(t, cert, s.CA)
		require.Empty(t, s.CAProblem)
		require.NotEmpty(t, s.Problem, "it has no key")
	}
	for _, c := range []*corev1.ConfigMap{configMap("istio", map[string]string{"ca.crt": cert}), configMap("other", map[string]string{"a": "b"})} {
		o, problems := Decoder{}.FromTyped(c)
		require.Nil(t, o, c.Name)
		require.Empty(t, problems)
	}
	s, _ := kube.Authorities(Decoder{}.cluster(), configMap("roots", map[string]string{"ca.crt": key}))
	require.Contains(t, s.CAProblem, "its ca.crt has a PRIVATE KEY where only certificates belong")
	require.Empty(t, s.CA)
	s, _ = kube.Authorities(Decoder{}.cluster(), configMap("roots", nil))
	require.Contains(t, s.CAProblem, "neither ca.crt nor cacert")
}

// TestSecretsOfRemoteClusters checks that a Secret by which Istio would read endpoints of another cluster is reported.
func TestSecretsOfRemoteClusters(t *testing.T) {
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "istio-remote-secret-west", Namespace: "istio-system"}}
	_, problems := kube.Secret(convert.Cluster{}, o)
	require.Empty(t, problems)
	o.Labels = map[string]string{"istio/multiCluster": "true"}
	_, problems = kube.Secret(convert.Cluster{}, o)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(), `metadata.labels["istio/multiCluster"]: has no effect: the mesh has one cluster`)
}

// TestSecretsThatAreNoCredentials checks that such Secrets are not kept.
func TestSecretsThatAreNoCredentials(t *testing.T) {
	s := secretWith(map[string]string{"token": "hunter2", "ca.crt": "x"})
	s.Type = corev1.SecretTypeServiceAccountToken
	o, problems := Decoder{}.FromTyped(s)
	require.Nil(t, o)
	require.Empty(t, problems)
}
