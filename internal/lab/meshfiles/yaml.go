package meshfiles

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strings"
)

func serviceFile(name string) string { return name + ".yaml" }
func routeFile(name string) string   { return name + "-route.yaml" }
func ruleFile(name string) string    { return name + "-rule.yaml" }

// serviceYAML is a Service with its EndpointSlice.
func (m *Mesh) serviceYAML(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  clusterIP: %[3]s
  selector: {app: %[1]s}
  ports: [{name: http, port: %[4]d, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
`, name, Namespace, clusterIP(name), cmp.Or(m.ServicePort, Port))
	for _, a := range m.endpoints[name] {
		fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true, serving: true}}\n", a)
	}
	return b.String()
}

// clusterIP is always the same for a name. Two names may have the same address, which does no harm here.
func clusterIP(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return ip(172, h.Sum32()&0xffffff).String()
}

// routeMark is the header value that marks the n-th version of a route.
func routeMark(n uint32) string { return fmt.Sprintf("mark-%08d", n) }

// routeYAML is a typical VirtualService: one match, one default, a timeout, a header.
func routeYAML(name string, n uint32) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  hosts: [%[1]s]
  http:
  - match: [{headers: {x-lab-user: {exact: tester}}}]
    route: [{destination: {host: %[1]s}}]
    timeout: 5s
  - route:
    - destination: {host: %[1]s}
      headers: {request: {set: {x-lab: %[3]s}}}
    timeout: 10s
`, name, Namespace, routeMark(n))
}

func ruleYAML(name string, connections uint32) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  host: %[1]s
  trafficPolicy:
    connectionPool: {tcp: {maxConnections: %[3]d}}
`, name, Namespace, connections)
}

func sidecarYAML(namespace string, hosts ...string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: %s}
spec:
  egress: [{hosts: ["%s"]}]
`, namespace, strings.Join(hosts, `", "`))
}
