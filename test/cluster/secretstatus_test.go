package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/test/kubetest"
)

// notPEM is a Secret that the API server accepts and no proxy can use.
const notPEM = `
apiVersion: v1
kind: Secret
metadata: {name: api-client}
type: kubernetes.io/tls
stringData: {tls.crt: nonsense, tls.key: nonsense}`

const httpsGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moonsail}
spec: {controllerName: moonsail.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: moonsail
  listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: api-client}]}}]`

// warnings returns those of "moonsail analyze" about a namespace.
func warnings(t *testing.T, c *kubetest.Cluster, ns string) string {
	t.Helper()
	out, _ := analyze(t, c.Kubeconfig(), "warning") // other tests' namespaces may have errors
	var about []string
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, ns) {
			about = append(about, line)
		}
	}
	return strings.Join(about, "\n")
}

// TestInvalidSecretsAreReported checks that Gateways report the invalid Secrets that they name, before and after a router
// exists.
func TestInvalidSecretsAreReported(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	asDeployed(t, c)
	https := func(o *unstructured.Unstructured) map[string]any { return entryWith("listeners", "name", "https")(o) }
	c.Apply(t, ns, gatewayWithSecret(ns)+"\n---"+httpsGateway+"\n---"+controlPlaneMay("moonsail-credentials"))
	message := awaitReconciled(t, c, ns, "Gateway", "edge", "True", status.ReasonWarnings)
	require.Contains(t, message, "spec.servers[0].tls.credentialName: Secret api-client: not found in namespace "+ns)
	require.Contains(t, warnings(t, c, ns), "Gateway/"+ns+"/edge: spec.servers[0].tls.credentialName: Secret api-client: not found")

	c.Apply(t, ns, gatewayAndRouters+"\n---"+notPEM)
	const unusable = "Secret api-client: unusable, so calls fail: its tls.crt and tls.key are not a certificate and its key"
	c.Eventually(t, "the Gateway tells of the Secret", saysOf(c, ns, "Gateway", "edge", unusable))
	awaitConditions(t, c, ns, "gateways", "web", https, "ResolvedRefs=False/InvalidCertificateRef", "Programmed=False/Invalid")
	require.Contains(t, warnings(t, c, ns), unusable)

	good, _ := secretOf(t, "api-client")
	c.Apply(t, ns, good)
	require.Empty(t, awaitReconciled(t, c, ns, "Gateway", "edge", "True", status.ReasonAccepted))
	awaitConditions(t, c, ns, "gateways", "web", https, "ResolvedRefs=True/ResolvedRefs")
	require.NotContains(t, warnings(t, c, ns), "Secret api-client")
}
