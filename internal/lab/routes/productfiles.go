package routes

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// productAddress and productNamespace are those of the client; services are in other namespaces.
const (
	productAddress   = "127.0.0.1"
	productNamespace = "client"
)

// productFiles is a mesh as files, with the same virtual hosts as those of the lab's server. One file has all services
// and their common endpoint; the routes of each service are in another file.
type productFiles struct {
	*meshfiles.Directory
	mesh           *mesh
	port, upstream uint32 // of the client's listener and so of all services; of the endpoint
}

func (f *productFiles) writeAll() error {
	var b strings.Builder
	b.WriteString(f.sidecar())
	for i := range f.mesh.wildcards {
		b.WriteString(f.wildcard(i))
	}
	for i := range f.mesh.versions {
		b.WriteString(f.service(i))
		if err := f.write(fmt.Sprintf("route-%d.yaml", i), f.route(i)); err != nil {
			return err
		}
	}
	return f.write("services.yaml", b.String())
}

func (f *productFiles) write(name, text string) error {
	commit, err := f.Stage(name, text)
	if err != nil {
		return err
	}
	return commit()
}

// change writes the newest version of a service's routes, by a rename.
func (f *productFiles) change(i int) error {
	return f.write(fmt.Sprintf("route-%d.yaml", i), f.route(i))
}

func (f *productFiles) sidecar() string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: %s}
spec:
  egress: [{port: {number: %d, name: http, protocol: HTTP}, bind: %s, captureMode: NONE, hosts: ["*/*"]}]
---
`, productNamespace, f.port, productAddress)
}

func (f *productFiles) wildcard(i int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild-%[1]d, namespace: ns-0}
spec:
  hosts: ["*.wild-%[1]d.example.com"]
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 127.0.0.1, ports: {http: %[3]d}}]
---
%[4]s---
`, i, f.port, f.upstream, f.virtualService(fmt.Sprintf("wild-%d", i), "ns-0", fmt.Sprintf("*.wild-%d.example.com", i), host(0)+".svc.cluster.local", fmt.Sprintf("wild-%d", i)))
}

func (f *productFiles) service(i int) string {
	list := domains(i)
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: svc-%[1]d, namespace: ns-%[2]d, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  clusterIP: %[3]s
  ports: [{name: http, port: %[4]d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: svc-%[1]d-1, namespace: ns-%[2]d, labels: {kubernetes.io/service-name: svc-%[1]d}}
addressType: IPv4
ports: [{name: http, port: %[5]d}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true, serving: true}}]
---
`, i, i%namespaces, list[len(list)-1], f.port, f.upstream)
}

func (f *productFiles) route(i int) string {
	h := host(i) + ".svc.cluster.local"
	return f.virtualService(fmt.Sprintf("svc-%d", i), fmt.Sprintf("ns-%d", i%namespaces), h, h, f.mesh.routed(i))
}

// virtualService sends a host's requests to a destination, and names the version in a response header.
func (f *productFiles) virtualService(name, namespace, host, destination, routed string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: %s}
spec:
  hosts: [%q]
  http: [{route: [{destination: {host: %s, port: {number: %d}}}], headers: {response: {set: {%s: %s}}}}]
`, name, namespace, host, destination, f.port, versionName, routed)
}
