package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// gatewayYAML is a Gateway that gets all kinds of objects, and a route to the Service echo.
const gatewayYAML = `
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data:
  horizontalPodAutoscaler: |
    spec: {minReplicas: 2, maxReplicas: 3}
  podDisruptionBudget: |
    spec: {minAvailable: 1}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: istio
  infrastructure:
    labels: {team: web}
    parametersRef: {group: "", kind: ConfigMap, name: web}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: echo, port: 8080}]}]
`

// deployed are the kinds of objects that the Gateway gets, all named web-istio.
var deployed = []string{"deployment", "service", "serviceaccount", "hpa", "pdb"}

// TestGateway checks a Gateway that deploys itself: its objects, its address, calls from outside of the mesh while its
// Pods and those behind it are replaced, and its end.
func TestGateway(t *testing.T) {
	ns := namespaceWith(t, "istio-injection: enabled, pod-security.kubernetes.io/enforce: privileged")
	apply(t, ns, echoYAML+"---"+gatewayYAML)
	rollout(t, ns, "deployment/echo")
	eventually(t, time.Minute, func() error {
		for _, kind := range deployed {
			out, err := kubectlOutput(t.Context(), nil, "-n", ns, "get", kind, "web-istio", "-o", "jsonpath={.metadata.labels}")
			if err != nil {
				return err
			}
			for _, label := range []string{`"gateway.networking.k8s.io/gateway-name":"web"`, `"team":"web"`} {
				if !strings.Contains(out, label) {
					return fmt.Errorf("%s web-istio has no label %s: %s", kind, label, out)
				}
			}
		}
		return nil
	})
	rollout(t, ns, "deployment/web-istio")
	eventually(t, time.Minute, func() error {
		if n := len(pods(t, ns, "gateway.networking.k8s.io/gateway-name=web")); n != 2 {
			return fmt.Errorf("%d Pods: the HorizontalPodAutoscaler wants 2", n)
		}
		return nil
	})
	rollout(t, ns, "deployment/web-istio")
	address := balance(t, ns)
	l := startOutsideLoad(t, ns, map[string]string{
		"kept": "http://" + address + "/", "new": "-new-connections http://" + address + "/",
	})
	for _, name := range []string{"deployment/web-istio", "deployment/echo"} {
		kubectl(t, "-n", ns, "rollout", "restart", name)
		rollout(t, ns, name)
	}
	awaitEnded(t, ns, "gateway.networking.k8s.io/gateway-name=web")
	awaitEnded(t, ns, "app=echo")
	l.requireNone("rolling restart of a gateway and of the Pods behind it")
	t.Run("another port", func(t *testing.T) { testGatewayPort(t, ns, address) })
	kubectl(t, "-n", ns, "delete", "gateway", "web")
	eventually(t, time.Minute, func() error {
		out, err := kubectlOutput(t.Context(), nil, "-n", ns, "get", strings.Join(append(slices.Clone(deployed), "pods"), ","), "-l", "gateway.networking.k8s.io/gateway-name=web", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("the Gateway is deleted, and these are not:\n%s", out)
		}
		return err
	})
}

// balance gives the Service an address of a load balancer, as a cloud would, and waits until the Gateway has it.
func balance(t *testing.T, ns string) string {
	t.Helper()
	const address = "172.30.0.100"
	kubectl(t, "-n", ns, "patch", "service", "web-istio", "--subresource=status", "--type=merge", "-p", `{"status":{"loadBalancer":{"ingress":[{"ip":"`+address+`"}]}}}`)
	kubectl(t, "-n", ns, "wait", "--for=condition=Programmed", "gateway/web", "--timeout=1m")
	if out := kubectl(t, "-n", ns, "get", "gateway", "web", "-o", "jsonpath={.status.addresses[*].value}"); out != address {
		t.Errorf("addresses of the Gateway: %q: expected %q", out, address)
	}
	return address
}

// testGatewayPort adds a listener, and calls its port.
func testGatewayPort(t *testing.T, ns, address string) {
	kubectl(t, "-n", ns, "patch", "gateway", "web", "--type=json", "-p", `[{"op":"add","path":"/spec/listeners/-","value":{"name":"more","port":8080,"protocol":"HTTP"}}]`)
	eventually(t, time.Minute, func() error {
		ports := get[corev1.Service](t, "-n", ns, "service", "web-istio").Spec.Ports
		if !slices.ContainsFunc(ports, func(p corev1.ServicePort) bool { return p.Port == 8080 }) {
			return fmt.Errorf("the Service has no port 8080: %v", ports)
		}
		out, err := kubectlOutput(t.Context(), nil, "-n", ns, "exec", "load", "-c", "kept", "--", "/app", "get", "http://"+address+":8080/more")
		if err == nil && !strings.Contains(out, `"path":"/more"`) {
			err = fmt.Errorf("unexpected answer: %s", out)
		}
		return err
	})
}
