package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/kubetest"
)

const gatewayAndRouters = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: gateway}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: other}
---
apiVersion: v1
kind: Pod
metadata: {name: gateway, labels: {istio: ingressgateway}}
spec: {serviceAccountName: gateway, containers: [{name: a, image: a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other, labels: {app: other}}
spec: {serviceAccountName: other, containers: [{name: a, image: a}]}`

// gatewayWithSecret returns a Gateway of a namespace, for a host that no other namespace has: deleted namespaces of other
// tests keep their Gateways for a while, and the older Gateway wins a conflict.
func gatewayWithSecret(ns string) string {
	return `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: 443, name: https, protocol: HTTPS}
    hosts: [` + ns + `.example.com]
    tls: {mode: SIMPLE, credentialName: api-client}`
}

// TestSecretsOfGateways checks that Pods that a Gateway selects get the key of the Secret that it names, without rights
// to read it, as long as the Gateway exists.
func TestSecretsOfGateways(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	secret, _ := secretOf(t, "api-client")
	c.Apply(t, "", string(rights))
	c.Apply(t, ns, gatewayAndRouters+"\n---"+gatewayWithSecret(ns)+"\n---"+secret+"\n---"+controlPlaneMay("moonsail-credentials"))
	w := watchSecrets(t, c, ns)
	w.until("it is for the gateway", func(s storedSecret) bool {
		return s.Certificate != "" && s.PrivateKey != "" && slices.Equal(s.Readers, []string{"gateway"})
	})
	c.Delete(t, ns, gatewayWithSecret(ns))
	w.untilUnnamed()
}

const kubernetesGateway = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: gateway}
---
apiVersion: v1
kind: Pod
metadata: {name: gateway, labels: {gateway.networking.k8s.io/gateway-name: web}}
spec: {serviceAccountName: gateway, containers: [{name: a, image: a}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: istio
  listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: api-client}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: web}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]
  to: [{group: "", kind: Service}]`

// TestGatewayAPI checks that objects of the Gateway API are read from an API server, and that the routers of its
// Gateways get their Secrets.
func TestGatewayAPI(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	secret, _ := secretOf(t, "api-client")
	c.Apply(t, "", string(rights))
	c.Apply(t, ns, kubernetesGateway+"\n---"+secret+"\n---"+controlPlaneMay("moonsail-credentials"))
	w := watchSecrets(t, c, ns)
	w.until("it is for the gateway", func(s storedSecret) bool { return slices.Equal(s.Readers, []string{"gateway"}) })
	for _, kind := range []string{"KubernetesGateway", "HTTPRoute", "ReferenceGrant"} {
		_, status := w.page(kind + "/" + ns + "/web")
		require.Equal(t, http.StatusOK, status, kind)
	}
}
