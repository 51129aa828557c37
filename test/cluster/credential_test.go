package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

const credentialed = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: other}
---
apiVersion: v1
kind: Pod
metadata: {name: reader, labels: {app: web}}
spec: {serviceAccountName: reader, containers: [{name: a, image: a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other, labels: {app: web}}
spec: {serviceAccountName: other, containers: [{name: a, image: a}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api}
spec:
  hosts: [api.example.com]
  resolution: DNS
  ports: [{number: 443, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: api}
spec:
  host: api.example.com
  workloadSelector: {matchLabels: {app: web}}
  trafficPolicy: {tls: {mode: MUTUAL, credentialName: api-client}}`

// mayReadSecret permits an account to get one Secret.
const mayReadSecret = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads-api-client}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [api-client], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads-api-client}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads-api-client}
subjects: [{kind: ServiceAccount, name: reader}]`

// controlPlaneMay gives the control plane the rights of a ClusterRole.
func controlPlaneMay(role string) string {
	return fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: moonsail, namespace: istio-system}]`, role)
}

// newPair returns a self-signed certificate and its key.
func newPair(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano())}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// secretOf returns a Secret with a new certificate, and a part of its key.
func secretOf(t *testing.T, name string) (document, secret string) {
	t.Helper()
	certPEM, keyPEM := newPair(t)
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s, ca.crt: %[2]s}`, name, encode(certPEM), encode(keyPEM)), strings.Split(string(keyPEM), "\n")[1]
}

// storedSecret is a Secret in the control plane's store.
type storedSecret struct {
	Certificate, CA, PrivateKey, Problem, CAProblem string
	Readers                                         []string
}

// TestCredentials checks that the control plane reads only the Secrets that a rule names, and follows who may have
// their keys. It must need no rights beyond those given.
func TestCredentials(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	named, key := secretOf(t, "api-client")
	unnamed, _ := secretOf(t, "other")
	c.Apply(t, "", string(rights))
	c.Apply(t, ns, credentialed+"\n---"+named+"\n---"+unnamed+"\n---"+mayReadSecret)
	w := watchSecrets(t, c, ns)

	w.until("it may not be read", func(s storedSecret) bool { return strings.Contains(s.Problem, "moonsail-credentials") })
	c.Apply(t, ns, controlPlaneMay("moonsail-credentials"))
	w.until("it is read", func(s storedSecret) bool { return s.Problem == "" && s.Certificate != "" && s.CA != "" })
	w.until("one account may have the key", func(s storedSecret) bool { return len(s.Readers) == 1 && s.Readers[0] == "reader" })
	text, status := w.page("Secret/" + ns + "/api-client")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, text, key)
	require.Contains(t, text, `"[redacted]"`)
	_, status = w.page("Secret/" + ns + "/other")
	require.Equal(t, http.StatusNotFound, status, "no object names it")

	before := w.get().Certificate
	next, _ := secretOf(t, "api-client")
	c.Apply(t, ns, next)
	w.until("there is a new certificate", func(s storedSecret) bool { return s.Certificate != "" && s.Certificate != before })

	c.Delete(t, ns, mayReadSecret)
	w.until("no account may have the key", func(s storedSecret) bool { return s.Readers != nil && len(s.Readers) == 0 && s.Problem == "" })
	c.Delete(t, ns, next)
	w.until("it is gone", func(s storedSecret) bool { return s.Problem == "it does not exist" })
	c.Delete(t, ns, credentialed)
	w.untilUnnamed()
}

const trusting = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: api}
spec:
  host: api.example.com
  trafficPolicy: {tls: {mode: SIMPLE, credentialName: "configmap://NAMESPACE/roots"}}`

// gatewayRights are the rights of --deploy-gateways, which include all ConfigMaps.
const gatewayRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: moonsail-gateways}`

// TestConfigMapsWithCAs checks that the control plane reads only the ConfigMaps that a rule names, and needs a binding
// for them if it does not deploy gateways.
func TestConfigMapsWithCAs(t *testing.T) {
	c := kubetest.Alone(t) // others use gatewayRights
	ns := c.Namespace(t)
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	cert, _ := newPair(t)
	configMap := func(name string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {ca.crt: %q}", name, cert)
	}
	c.Apply(t, "", string(rights))
	c.Delete(t, "", gatewayRights)
	c.Apply(t, ns, strings.ReplaceAll(trusting, "NAMESPACE", ns)+"\n---\n"+configMap("other"))
	w := watchSecrets(t, c, ns)
	w.object = "ConfigMap/" + ns + "/roots"

	w.until("it may not be read", func(s storedSecret) bool { return strings.Contains(s.CAProblem, "moonsail-authorities") })
	c.Apply(t, ns, controlPlaneMay("moonsail-authorities"))
	w.until("there is none", func(s storedSecret) bool { return s.CAProblem == "it does not exist" })
	c.Apply(t, ns, configMap("roots"))
	w.until("it is read", func(s storedSecret) bool { return s.CA == string(cert) && s.CAProblem == "" })
	_, status := w.page("ConfigMap/" + ns + "/other")
	require.Equal(t, http.StatusNotFound, status, "no object names it")
	c.Delete(t, ns, configMap("roots"))
	w.until("it is gone", func(s storedSecret) bool { return s.CA == "" && s.CAProblem == "it does not exist" })
	c.Delete(t, ns, trusting)
	w.untilUnnamed()
}

// watchSecrets starts a control plane with the rights of the manifests, and follows the Secrets of a namespace in its
// store.
func watchSecrets(t *testing.T, c *kubetest.Cluster, ns string) *secretWatcher {
	t.Helper()
	pages := make(chan string, 1)
	runControl(t, c, func(o *controlplane.Options) {
		o.Status, o.HTTPAddr, o.RecheckReaders = false, "127.0.0.1:0", 100*time.Millisecond
		o.Kubernetes.Kubeconfig = c.KubeconfigAs(t, "istio-system", "moonsail")
		listening := o.Listening
		o.Listening = func(xds, http net.Addr) { pages <- http.String(); listening(xds, http) }
	})
	return &secretWatcher{t: t, c: c, at: await.From(t, pages), object: "Secret/" + ns + "/api-client"}
}

type secretWatcher struct {
	t          *testing.T
	c          *kubetest.Cluster
	at, object string
}

func (w *secretWatcher) page(key string) (text string, status int) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.at+"/debug/store/"+key, http.NoBody)
	require.NoError(w.t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	var body json.RawMessage
	require.NoError(w.t, json.NewDecoder(resp.Body).Decode(&body))
	return string(body), resp.StatusCode
}

func (w *secretWatcher) get() storedSecret {
	w.t.Helper()
	text, _ := w.page(w.object)
	var s storedSecret
	require.NoError(w.t, json.Unmarshal([]byte(text), &s))
	return s
}

func (w *secretWatcher) until(what string, is func(storedSecret) bool) {
	w.t.Helper()
	w.c.Eventually(w.t, what, func(context.Context) error {
		if s := w.get(); !is(s) {
			return fmt.Errorf("it has %d readers: %s; %s", len(s.Readers), s.Problem, s.CAProblem)
		}
		return nil
	})
}

// untilUnnamed waits until the Secret that was named has left the store.
func (w *secretWatcher) untilUnnamed() {
	w.t.Helper()
	w.c.Eventually(w.t, "no object names it any more", func(context.Context) error {
		if _, status := w.page(w.object); status != http.StatusNotFound {
			return fmt.Errorf("the answer is %d", status)
		}
		return nil
	})
}
