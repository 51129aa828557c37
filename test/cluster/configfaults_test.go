package cluster

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

// subscribe subscribes to a resource in addition to those of every proxy.
func (p *proxy) subscribe(t *testing.T, typ resource.Type, name string) {
	t.Helper()
	p.mu.Lock() // no other goroutine sends meanwhile
	defer p.mu.Unlock()
	require.NoError(t, p.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typ.URL(), ResourceNamesSubscribe: []string{name}}))
}

// TestConfigAndWhyDuringFaults checks on a real API server that 'proxy-config' shows how far each resource has come
// to a proxy that does not answer, refuses, or is cut off. 'why' must warn that such a proxy may act differently. While
// the API server is paused, both must show what is known.
func TestConfigAndWhyDuringFaults(t *testing.T) {
	c := kubetest.Alone(t)
	a, url, healthy, faulty := startAsked(t, c, "faulty")
	status, out := a.wait("1m")
	require.Zero(t, status, out)
	for _, p := range []*proxy{healthy, faulty} {
		p.subscribe(t, resource.RouteConfig, "80")
	}
	clusters := func(p *proxy) []string {
		return []string{"proxy-config", "clusters", p.model.String(), "--name", "reviews", "--admin", "none"}
	}
	why := func(p *proxy) []string { return []string{"why", p.model.String(), "http://reviews/"} }
	const doubt = "so it may do something else"
	neither := func(args []string, text string) {
		t.Helper()
		status, out := ask(t, append(args, "--address", url)...)
		require.Zero(t, status, out)
		require.NotContains(t, out, text)
	}
	a.says(clusters(faulty), "ACKed")
	a.says(why(faulty), "outbound|80||reviews."+a.ns, "10.1.2.1:8080")
	neither(why(faulty), doubt)

	// Stopped: the proxy was sent the cluster and does not answer.
	faulty.mu.Lock()
	a.rule(2)
	a.says(clusters(faulty), "sent")
	a.says(why(faulty), doubt)
	a.says(clusters(healthy), "ACKed")
	neither(why(healthy), doubt)
	a.endpoint(2) // waits behind it, or is in flight
	a.says(why(faulty), "10.1.2.2:8080", doubt)
	faulty.mu.Unlock()
	a.says(clusters(faulty), "ACKed")
	a.says(why(healthy), "10.1.2.2:8080")

	// Refused: with Envoy's message.
	refuse := func(name string) {
		faulty.mu.Lock()
		defer faulty.mu.Unlock()
		faulty.refuses = name
	}
	refuse("outbound|80||reviews." + a.ns + ".svc.cluster.local")
	a.rule(3)
	a.says(clusters(faulty), "refused", "not with me")
	a.says(why(faulty), doubt)
	neither(clusters(healthy), "refused")
	refuse("")
	a.rule(4)
	a.says(clusters(faulty), "ACKed")
	neither(clusters(faulty), "refused")

	// Cut off: nothing is known about the proxy.
	faulty.cut()
	a.says(clusters(faulty), "is disconnected, since")
	a.says(why(faulty), "is disconnected, since")

	// The API server does not answer: what arrived before is known.
	c.Pause(t)
	defer c.Resume(t)
	a.says(clusters(healthy), "ACKed")
	a.says(why(healthy), "10.1.2.2:8080")
}
