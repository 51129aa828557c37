package server

import (
	"testing"

	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

func TestClustersAreRemovedOnceUnused(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(remove(resource.Cluster, "c1"), remove(resource.Endpoints, "c1"), listener("l1", "without c1"))
		r := c.expect(resource.Listener, "l1")
		c.quiet() // as long as the listener is not ACKed
		c.ack(r)
		c.take(resource.Cluster, "-c1")
	})
}

func TestClustersStayWhileSomethingThatMayReferToThemIsHeldBack(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		rev := h.commit(remove(resource.Cluster, "c1"), remove(resource.Endpoints, "c1"), listener("l1", "refused, without c1"))
		c.nack(c.expect(resource.Listener, "l1"), "no")
		c.quiet()
		h.eventually("it counts as settled", func() bool { return h.observer.outcomes(rev)[distribution.NACKed] == 1 })
		h.commit(listener("l1", "good, without c1"))
		c.take(resource.Listener, "l1")
		c.take(resource.Cluster, "-c1")
	})
}

func TestRemovedAndAddedAgainIsAnUpdate(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(listener("l1", "2"))
		r := c.expect(resource.Listener, "l1")
		h.commit(remove(resource.Listener, "l1"))
		h.commit(listener("l1", "3"))
		c.ack(r)
		c.take(resource.Listener, "l1")
		c.quiet()
	})
}
