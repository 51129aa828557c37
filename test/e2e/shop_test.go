package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// app is an application's process, at a separate address.
type app struct {
	name    string
	version string
	ip      string
	port    uint32
	served  atomic.Int64

	// handle answers requests; nil: answer with the application's name.
	handle http.HandlerFunc
}

// startApp serves until the test ends.
func startApp(t *testing.T, name, version string) *app {
	t.Helper()
	a := &app{name: name, version: version, ip: ownIP()}
	a.serve(t)
	return a
}

func (a *app) serve(t *testing.T) {
	t.Helper()
	serveHTTP(t, a.listen(t), &http.Server{Handler: a}) //nolint:gosec // of a test
}

// listen opens a free port at the application's address.
func (a *app) listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(a.ip, "0"))
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	a.port = uint32(n)
	return ln
}

// serveHTTP serves until the test ends.
func serveHTTP(t *testing.T, ln net.Listener, s *http.Server) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
}

// ServeHTTP implements http.Handler.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.served.Add(1)
	if a.handle != nil {
		a.handle(w, r)
		return
	}
	_, _ = io.WriteString(w, a.name+"-"+a.version)
}

// service is a Service of port meshPort with the given applications, one Pod and one EndpointSlice each, since each has
// another port.
func service(name string, apps ...*app) string {
	docs := []string{fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec: {selector: {app: %[1]s}, ports: [{name: http, port: %[2]d}]}`, name, meshPort)}
	for _, a := range apps {
		docs = append(docs, fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]s-%[3]s, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[5]d}]
endpoints:
- {addresses: [%[4]s], targetRef: {kind: Pod, name: %[2]s-%[3]s, namespace: shop}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[2]s-%[3]s, namespace: shop, labels: {app: %[2]s, version: %[3]s}}
status: {podIP: %[4]s}`, name, a.name, a.version, a.ip, a.port))
	}
	return strings.Join(docs, "\n---\n")
}

// routes is the VirtualService of a host; rules are its http rules, in flow style.
func routes(host string, rules ...string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s]
  http:
  - %[2]s`, host, strings.Join(rules, "\n  - "))
}

// to is a rule that leads to one host, or "host/subset".
func to(destination string) string {
	host, subset, some := strings.Cut(destination, "/")
	if some {
		return fmt.Sprintf("{route: [{destination: {host: %s, subset: %s}}]}", host, subset)
	}
	return fmt.Sprintf("{route: [{destination: {host: %s}}]}", host)
}

// subsets is a DestinationRule whose subsets are versions of the same name.
func subsets(host string, versions ...string) string {
	out := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: shop}
spec:
  host: %[1]s
  subsets:`, host)
	for _, v := range versions {
		out += fmt.Sprintf("\n  - {name: %[1]s, labels: {version: %[1]s}}", v)
	}
	return out
}
