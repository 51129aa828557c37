package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// mixed is a service with an endpoint at the server, and one without a sidecar.
func (m *mutual) mixed() string {
	slice := func(pod, ip string, port uint32) string {
		return fmt.Sprintf(`
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: mixed-%[1]s, namespace: shop, labels: {kubernetes.io/service-name: mixed}}
addressType: IPv4
ports: [{name: http, port: %[3]d}]
endpoints: [{addresses: [%[2]s], targetRef: {kind: Pod, name: %[1]s, namespace: shop}}]`, pod, ip, port)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: mixed, namespace: shop}
spec: {ports: [{name: http, port: %d}]}`, serviceHTTP) + slice("server", m.server.ip, memberHTTP) + slice("plain-v1", m.plain.ip, m.plain.port)
}

// TestMixedEndpoints checks that, of one service, exactly the endpoints that support mutual TLS get it, also while that
// changes.
func TestMixedEndpoints(t *testing.T) {
	m := startMutual(t)
	client := spiffeID("client")
	strict := peerAuthentication("STRICT")
	both := func(why, wantPeer string) {
		t.Helper()
		got := map[string]bool{}
		eventually(t, why, func() bool {
			status, body := m.call("mixed", serviceHTTP)
			got[fmt.Sprint(status, " ", body)] = true
			return got["200 server-v1"] && got["200 plain-v1"] && m.peer() == wantPeer
		}, func() string { return fmt.Sprint(got, " as ", m.peer()) })
	}
	m.apply(m.config("server", strict, m.mixed())...)
	both("each endpoint gets what it speaks", client)
	for range 20 {
		status, body := m.call("mixed", serviceHTTP)
		require.Equal(t, http.StatusOK, status, body)
	}

	m.apply(m.config("server", peerAuthentication("DISABLE"), m.mixed())...)
	both("the server speaks it no more", "")
	m.apply(m.config("server", strict, m.mixed())...)
	both("the server speaks it again", client)
	m.requireNothingHeld()
}
