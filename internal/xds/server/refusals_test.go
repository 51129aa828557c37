package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// abouts returns the names of the resources that a refusal may be about.
func abouts(r *distribution.Refusal) (out []string) {
	for _, p := range r.About {
		out = append(out, p.Type.String()+" "+p.Entry.Name)
	}
	return out
}

func TestRefusalsAreCountedOverProxies(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		one := h.warm("")
		two := h.connectAs("sidecar~10.0.0.2~app-2.shop~shop.svc.cluster.local", "")
		two.subscribe(resource.Listener)
		two.take(resource.Listener, "l1")
		require.Empty(t, h.server.Refusals())

		h.commit(listener("l1", "bad"))
		one.nack(one.expect(resource.Listener, "l1"), "worse")
		two.nack(two.expect(resource.Listener, "l1"), "bad")
		h.eventually("both are counted", func() bool {
			all := h.server.Refusals()
			return len(all) == 1 && all[0].Proxies == 2
		})
		r := h.server.Refusals()[0]
		require.Equal(t, "l1", r.Name)
		require.Equal(t, "bad", r.Message, "of the proxies' words the first in order")
		require.Equal(t, []string{"LDS l1"}, abouts(r))
		require.Equal(t, "shop", r.About[0].Proxy.Namespace, "it is one of those that refuse")

		h.commit(listener("l1", "good"))
		require.Empty(t, h.server.Refusals(), "what they refused is not there any more")
		one.take(resource.Listener, "l1")
		two.take(resource.Listener, "l1")
	})
}

func TestRefusalOfAWholeIsAboutNewParts(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{RouteStrategy: RoutesRDS})
		h.commit(append(routeConfig("80"), virtualHost("80/a", "c1"), virtualHost("80/b", "c1"))...)
		c := h.warm("")
		c.subscribe(resource.RouteConfig, "80")
		c.take(resource.RouteConfig, "80")
		h.commit(virtualHost("80/b", "c2"))
		c.nack(c.expect(resource.RouteConfig, "80"), "no")
		h.eventually("it is counted", func() bool { return len(h.server.Refusals()) == 1 })
		require.Equal(t, "80", h.server.Refusals()[0].Name)
		require.Equal(t, []string{"VHDS 80/b"}, abouts(h.server.Refusals()[0]))
	})
}
