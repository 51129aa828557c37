package chaos

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// namespace is that of the mesh.
const namespace = "chaos"

const namespaceObject = "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}"

// Ports. Clients call services at their own sidecar, which listens on the services' ports.
const (
	httpPort  = 18080
	grpcPort  = 18081
	tcpPort   = 18100 // of service 1 minus 1; each service has its own
	meshHTTP  = 19080 // servers' sidecars
	meshGRPC  = 19081
	meshTCP   = 19082
	appHTTP   = 19090 // applications
	appGRPC   = 19091
	appTCP    = 19092
	adminPort = 15000
	readyPort = 15021
	planePort = 15012
)

// layout has the addresses of a mesh's workloads: one loopback address each.
type layout struct {
	Shape

	subnet string // "127.150.3."
}

// Last parts of addresses that are no workload's.
const (
	externalHost = 200 // of the first address of external hosts
	planeHost    = 240 // of the first control plane
)

// ip returns the address of a workload.
func (l layout) ip(name string) string {
	return l.subnet + strconv.Itoa(1+slices.Index(l.proxies(), name))
}

// externalIP returns the address "a" or "b" of external hosts.
func (l layout) externalIP(which string) string {
	return l.subnet + strconv.Itoa(externalHost+int(which[0]-'a'))
}

func (l layout) planeIP(n int) string { return l.subnet + strconv.Itoa(planeHost+n) }

// tcpPortOf returns the port of a service's TCP.
func tcpPortOf(service string) int {
	n, _ := strconv.Atoi(service[1:]) // the plan's names have numbers
	return tcpPort + n
}

func hostOf(service string) string {
	if service[0] == 'e' {
		return service + ".example"
	}
	return service + "." + namespace + ".svc.cluster.local"
}

// mark is the label with the number of a write, by which two versions of an object differ.
func mark(number int) string { return fmt.Sprintf("labels: {chaos: n%d}", number) }

// fixed returns the objects that a run does not change, by file.
func (l layout) fixed() map[string]string {
	out := map[string]string{"namespace": namespaceObject}
	for _, name := range l.proxies() {
		out["pod-"+name] = l.pod(name)
		out["sidecar-"+name] = l.sidecar(name)
		if l.APIServer {
			out["account-"+accountOf(name)] = fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s}", accountOf(name), namespace)
		}
	}
	for _, s := range l.services() {
		out["ports-"+s] = portsObject(s)
		out["service-"+s] = fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec:
  ports:
  - {name: http, port: %d, targetPort: %d}
  - {name: grpc, port: %d, targetPort: %d}
  - {name: tcp, port: %d, targetPort: %d}`, s, namespace, httpPort, meshHTTP, grpcPort, meshGRPC, tcpPortOf(s), meshTCP)
	}
	return out
}

// portsObject is a Service that no client calls. Its selector decides what the servers' listeners serve. The called Service has
// no selector, as the run writes its EndpointSlices. It would decide only as long as a server is in one of them: each of their
// changes would replace listeners, and drain connections.
func portsObject(service string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s-ports, namespace: %[2]s}
spec:
  selector: {app: %[1]s}
  ports:
  - {name: http, port: %[3]d}
  - {name: grpc, port: %[4]d}
  - {name: tcp, port: %[5]d}`, service, namespace, meshHTTP, meshGRPC, meshTCP)
}

// accountOf returns the service account of a workload: a client's name, or that of the service.
func accountOf(workload string) string { return serviceOf(workload) }

func (l layout) pod(name string) string {
	version := "v1"
	if _, v, ok := strings.Cut(name, "-"); ok {
		version = v
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: %[2]s
  labels: {app: %[3]s, version: %[4]s, instance: %[1]s, security.istio.io/tlsMode: istio}
  annotations:
    kubelet.moonsail.dev/ip: %[5]s
    sidecar.istio.io/interceptionMode: NONE
    proxy.istio.io/config: '{"concurrency": 1, "drainDuration": "%[6]s"}'
spec:
  serviceAccountName: %[3]s
  containers: [{name: app, image: app}]
status: {phase: Running, podIP: %[5]s}`, name, namespace, accountOf(name), version, l.ip(name), drainTime)
}

func (l layout) sidecar(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  workloadSelector: {labels: {instance: %[1]s}}
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
`, name, namespace)
	ip := l.ip(name)
	if slices.Contains(l.clients(), name) {
		b.WriteString("  egress:\n")
		listener := func(port int, protocol string) {
			fmt.Fprintf(&b, "  - {port: {number: %d, name: %s-%d, protocol: %s}, bind: %s, captureMode: NONE, hosts: [\"./*\"]}\n",
				port, strings.ToLower(protocol), port, protocol, ip)
		}
		listener(httpPort, "HTTP")
		listener(grpcPort, "GRPC")
		for _, s := range l.services() {
			listener(tcpPortOf(s), "TCP")
		}
		return b.String()
	}
	b.WriteString("  egress: [{hosts: [\"~/*\"]}]\n  ingress:\n")
	for _, p := range []struct {
		port, app int
		protocol  string
	}{{meshHTTP, appHTTP, "HTTP"}, {meshGRPC, appGRPC, "GRPC"}, {meshTCP, appTCP, "TCP"}} {
		fmt.Fprintf(&b, "  - {port: {number: %d, name: %s, protocol: %s}, bind: %s, captureMode: NONE, defaultEndpoint: \"0.0.0.0:%d\"}\n",
			p.port, strings.ToLower(p.protocol), p.protocol, ip, p.app)
	}
	return b.String()
}

// object returns the YAML of an object in a state, or "" if it does not exist in that state. The number of the write is part of it.
// kept is the number of the last write of it that was valid, or 0.
func (l layout) object(name, state string, number, kept int) string {
	kind, of, _ := strings.Cut(name, "/")
	if state == none {
		return ""
	}
	switch kind {
	case "route":
		return ruleObject(of, number, kept) + separator + routeObject(of, state, number)
	case "auth":
		return authObject(of, state, number)
	case "mtls":
		return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec: {selector: {matchLabels: {app: %[1]s}}, mtls: {mode: %[4]s}}`, of, namespace, mark(number), strings.ToUpper(state))
	case "endpoints":
		return l.slice(of, state, number)
	case "refusal":
		return refusalObject(of, number)
	case "entry":
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec:
  hosts: [%[4]s]
  ports: [{number: %[5]d, name: http, protocol: HTTP, targetPort: %[6]d}]
  location: MESH_EXTERNAL
  resolution: STATIC
  endpoints: [{address: %[7]s}]`, of, namespace, mark(number), hostOf(of), httpPort, appHTTP, l.externalIP(state))
	}
	panic("chaos: no such object: " + name)
}

// refusalObject makes a virtual host that only Envoy refuses: the control plane does not know which headers it may set.
func refusalObject(name string, number int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec:
  hosts: [%[1]s.example]
  ports: [{number: %[4]d, name: http, protocol: HTTP}]
  location: MESH_EXTERNAL
  resolution: STATIC
  endpoints: [{address: 127.0.0.9}]%[5]sapiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec:
  configPatches:
  - applyTo: VIRTUAL_HOST
    match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: "%[1]s.example:%[4]d"}}}
    patch: {operation: MERGE, value: {request_headers_to_add: [{header: {key: ":path", value: n%[6]d}}]}}`,
		name, namespace, mark(number), httpPort, separator, number)
}

// separator is between the documents of an object that consists of two.
const separator = "\n---\n"

// subset is the name of a version's subset for one write of a route, so that each write replaces all clusters of its
// subsets.
func subset(version string, number int) string { return fmt.Sprintf("%s-n%d", version, number) }

// ruleObject has the subsets of a write, and those of the one before it, if that is in force until the route is replaced.
func ruleObject(service string, number, kept int) string {
	var subsets []string
	for _, n := range []int{number, kept} {
		for _, v := range versions {
			if n != 0 {
				subsets = append(subsets, fmt.Sprintf("{name: %s, labels: {version: %s}}", subset(v, n), v))
			}
		}
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec: {host: %[4]s, subsets: [%[5]s]}`, service, namespace, mark(number), hostOf(service), strings.Join(subsets, ", "))
}

func routeObject(service, state string, number int) string {
	destination := func(version string, weight int) string {
		return fmt.Sprintf("{destination: {host: %s, subset: %s}, weight: %d}", hostOf(service), subset(version, number), weight)
	}
	var rule string
	switch state {
	case split:
		rule = "route: [" + destination("v1", 50) + ", " + destination("v2", 50) + "]"
	case abort:
		rule = fmt.Sprintf("fault: {abort: {httpStatus: %d, percentage: {value: 100}}}, route: [{destination: {host: %s}}]", abortCode, hostOf(service))
	case invalid:
		rule = "route: [" + destination("v1", -50) + ", " + destination("v2", 150) + "]"
	default:
		rule = "route: [" + destination(state, 100) + "]"
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec:
  hosts: [%[4]s]
  http: [{name: n%[5]d, %[6]s}]`, service, namespace, mark(number), hostOf(service), number, rule)
}

func principal(account string) string { return "cluster.local/ns/" + namespace + "/sa/" + account }

func authObject(service, state string, number int) string {
	how, who, _ := strings.Cut(state, ":")
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  action: %[4]s
  rules: [{from: [{source: {principals: [%[5]s, %[6]s]}}]}]`, service, namespace, mark(number), strings.ToUpper(how), principal(who), principal(authMark(number)))
}

// authMark is an account that does not exist and identifies a write.
func authMark(number int) string { return fmt.Sprintf("n%d-", number) }

func (l layout) slice(service, state string, number int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s
  namespace: %[2]s
  labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: moonsail-lab, chaos: n%[3]d}
addressType: IPv4
ports: [{name: http, port: %[4]d}, {name: grpc, port: %[5]d}, {name: tcp, port: %[6]d}]
endpoints:
`, service, namespace, number, meshHTTP, meshGRPC, meshTCP)
	for _, v := range strings.Split(state, ",") {
		name := instanceName(service, v)
		fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true}, targetRef: {kind: Pod, name: %s, namespace: %s}}\n", l.ip(name), name, namespace)
	}
	return b.String()
}

// noise returns an object of a burst. No request depends on any of them. Some are invalid.
func noise(group string, i, number int) string {
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(group, "/", "-"), i)
	switch i % 5 {
	case 0, 1:
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s, %s}\nspec: {ports: [{name: http, port: %d}]}", name, namespace, mark(number), httpPort)
	case 2:
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec: {hosts: [%[1]s.noise], http: [{route: [{destination: {host: %[1]s.noise}, weight: %[4]d}]}]}`, name, namespace, mark(number), 100-200*(i%2))
	case 3:
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec: {host: %[1]s.noise, trafficPolicy: {connectionPool: {tcp: {maxConnections: %[4]d}}}}`, name, namespace, mark(number), number)
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: %[2]s, %[3]s}
spec: {hosts: [%[1]s.noise], ports: [{number: %[4]d, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 127.0.0.9}]}`, name, namespace, mark(number), httpPort)
}

func at(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
