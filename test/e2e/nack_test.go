package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestRefusedResourceIsHeld checks a certificate file that the sidecar does not have, which the control plane cannot
// know. Envoy refuses that one cluster. Its message must be shown, and everything else must apply, in the same write
// and later.
func TestRefusedResourceIsHeld(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			refusedResourceIsHeld(t, way.strategy, way.sotw)
		})
	}
}

func refusedResourceIsHeld(t *testing.T, strategy server.RouteStrategy, sotw bool) {
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	c := newClient("client")
	m := startMesh(t, strategy, c.sidecar("./*"), service("web", web), service("bank", other))
	c.start(t, m, sotw)
	calls, bank := startTraffic(t, c, "web"), startTraffic(t, c, "bank")
	calls.requireOnly("web-v1")

	refused := tlsTo("bank", "/nonexistent/roots.pem")
	change := m.apply(c.sidecar("./*"), service("web", web), service("bank", other), refused,
		service("new", other), routes("web", to("new")))
	require.Equal(t, changelog.Proxies{Concerned: 1, Nacked: 1}, change.Proxies)
	calls.requireOnly("other-v1") // a change in the same write
	bank.requireOnly("other-v1")  // the last valid version stays in force
	requireHeld(t, m, c, "outbound|15080||bank.shop.svc.cluster.local", "/nonexistent/roots.pem")

	m.apply(c.sidecar("./*"), service("web", web), service("bank", other), refused, service("new", other), routes("web", to("web")))
	calls.requireOnly("web-v1") // a later change
	requireHeld(t, m, c, "outbound|15080||bank.shop.svc.cluster.local", "/nonexistent/roots.pem")
	nacks := c.rejected(t)["cluster_manager.cds.update_rejected"]

	m.apply(c.sidecar("./*"), service("web", web), service("bank", other), routes("web", to("web")))
	bank.requireOnly("other-v1")
	require.Empty(t, held(*m.proxy(c.name)))
	require.Equal(t, nacks, c.rejected(t)["cluster_manager.cds.update_rejected"], "refused once more")
}

func tlsTo(host, roots string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: shop}
spec: {host: %[1]s, trafficPolicy: {tls: {mode: SIMPLE, caCertificates: %[2]s}}}`, host, roots)
}

// requireHeld checks that one resource is held back, and that Envoy's message names the problem.
func requireHeld(t *testing.T, m *mesh, c *client, name, says string) {
	t.Helper()
	h := held(*m.proxy(c.name))
	require.Len(t, h, 1)
	require.Equal(t, name, h[0].Name)
	require.Contains(t, h[0].Message, says)
}
