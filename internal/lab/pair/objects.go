package pair

import (
	"fmt"
	"maps"
	"strings"
)

// meshObject is the ConfigMap with the mesh's configuration.
func meshObject(config string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n  mesh: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    ")
}

// own returns the objects that every pair has.
func (p *Pair) own() []string {
	mode := "DISABLE"
	if p.MTLS {
		mode = "STRICT"
	}
	out := []string{p.clientObjects(), p.serverObjects(), fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: %s}
spec: {mtls: {mode: %s}}`, p.Namespace, mode)}
	if p.HTTP1 {
		out = append(out, fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: %s}
spec: {host: server, trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: DO_NOT_UPGRADE}}}}`, p.Namespace))
	}
	return out
}

// podObject is a workload. The label for mutual TLS states that it has a sidecar.
func (p *Pair) podObject(name, ip string, sidecar bool, annotations map[string]string) string {
	labels := "app: " + name
	if sidecar {
		labels += ", security.istio.io/tlsMode: istio"
	}
	text := "sidecar.istio.io/interceptionMode: NONE"
	for k, v := range annotations {
		text += fmt.Sprintf("\n    %s: %q", k, v)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: %[2]s
  labels: {%[3]s}
  annotations:
    %[4]s
spec: {serviceAccountName: %[1]s}
status: {phase: Running, podIP: %[5]s}`, name, p.Namespace, labels, text, ip)
}

func (p *Pair) clientObjects() string {
	ip := p.clientIP
	return p.podObject(clientName, ip, p.Setup.Client, p.ClientAnnotations) + fmt.Sprintf(`
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: %[1]s}
spec:
  workloadSelector: {labels: {app: client}}
  egress:
  - {port: {number: %[2]d, name: %[3]s, protocol: %[3]s}, bind: %[4]s, captureMode: NONE, hosts: ["%[5]s"]}`,
		p.Namespace, servicePort, p.protocol(), ip, p.seen())
}

// seen returns the hosts of both Sidecars, as the inside of a list: the pair's, and those of its Setup.
func (p *Pair) seen() string { return strings.Join(append([]string{"./*"}, p.Hosts...), `", "`) }

// protocol returns the protocol of the service's port, as the port's name.
func (p *Pair) protocol() string {
	if p.TCP {
		return "tcp"
	}
	return "http"
}

// anyWorker is Istio's setting that turns exact_balance off.
const anyWorker = `{proxyMetadata: {ISTIO_META_INBOUND_LISTENER_EXACT_BALANCE: "false"}}`

func (p *Pair) serverObjects() string {
	annotations := map[string]string{}
	maps.Copy(annotations, p.ServerAnnotations)
	if p.AnyWorker {
		annotations["proxy.istio.io/config"] = anyWorker
	}
	return p.podObject(serverName, p.serverIP, p.Setup.Server, annotations) + fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: %[1]s}
spec:
  selector: {app: server}
  ports: [{name: %[5]s, port: %[2]d, targetPort: %[3]d}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: server, namespace: %[1]s}
spec:
  workloadSelector: {labels: {app: server}}
  ingress:
  - {port: {number: %[3]d, name: %[5]s, protocol: %[5]s}, captureMode: NONE, defaultEndpoint: "%[4]s"}
  egress: [{hosts: ["%[6]s"]}]`,
		p.Namespace, servicePort, meshPort, p.mesh.Backend(), p.protocol(), p.seen())
}

// Patches is an EnvoyFilter object of a pair's namespace, with items of configPatches.
func Patches(object, items string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: %s, namespace: $NAMESPACE}
spec:
  configPatches:
%s`, object, items)
}

// BeforeRouter is an EnvoyFilter object that adds a filter before the router of all sidecars of a pair. Config is the
// rest of the filter's YAML, indented by eight spaces.
func BeforeRouter(object, filter, config string) string {
	return Patches(object, fmt.Sprintf(`  - applyTo: HTTP_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: %s
%s`, filter, config))
}
