package server

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

func TestListenersWaitForNewClusters(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"), endpoints("c1", "2"))
		clusters := c.expect(resource.Cluster, "c2")
		ends := c.expect(resource.Endpoints, "c1", "c2") // endpoints never wait
		c.subscribe(resource.Endpoints, "c2")
		c.take(resource.Listener, "l2")
		c.ack(clusters)
		c.ack(ends)
	})
}

func TestRoutesDoNotWaitForUnrelatedChanges(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(edsCluster("c1", "changed"))
		c.expect(resource.Cluster, "c1")   // not answered
		c.expect(resource.Endpoints, "c1") // a changed cluster needs them again
		h.commit(listener("l1", "2"))
		c.take(resource.Listener, "l1")
	})
}

func TestRebindingSendsDifferencesInOrder(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		rev := h.commit(edsCluster("both", "1"), endpoints("both", "1"))
		r, ends := c.expect(resource.Cluster, "both"), c.expect(resource.Endpoints, "both")
		c.subscribe(resource.Endpoints, "both")
		c.ack(r)
		c.ack(ends)
		h.becomes(rev, "app-1", distribution.StateACKed)

		other := table.New("other")
		h.commitTo(other, edsCluster("both", "1"), endpoints("both", "1"), edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"))
		h.rebinds[nodeID]([]*table.Table{other, h.in})
		r, ends = c.expect(resource.Cluster, "c2"), c.expect(resource.Endpoints, "c2")
		c.take(resource.Listener, "-l1")
		c.subscribe(resource.Endpoints, "c2")
		c.ack(r)
		c.ack(ends)
		c.take(resource.Listener, "l2")
		c.take(resource.Cluster, "-c1")
		c.take(resource.Endpoints, "-c1")
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNamesUnsubscribe: []string{"c1"}})

		h.commit(listener("l1", "no stream is bound to it")) // the old table
		h.commitTo(other, listener("l2", "2"))
		c.take(resource.Listener, "l2")
	})
}

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

func TestRefusedListenerKeepsClusters(t *testing.T) {
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

// TestWatchdogEndsWaits: a proxy that never requests the endpoints of a cluster receives its listeners after
// some time, even if the watchdog saw before that nothing waits.
func TestWatchdogEndsWaits(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		st := h.server.streams.all()[0]
		waits := func() bool {
			st.checkAfter(0)
			st.mu.Lock()
			defer st.mu.Unlock()
			return !st.wait.IsZero()
		}
		h.eventually("nothing waits", func() bool { return !waits() })
		h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"))
		c.take(resource.Cluster, "c2")
		c.take(resource.Endpoints, "c2")
		h.eventually("the listener waits", waits)
		st.checkAfter(endpointsTimeout / 2)
		c.quiet()
		st.checkAfter(endpointsTimeout + time.Second)
		c.take(resource.Listener, "l2")
	})
}

// TestWatchdogWaitsForAnswers: a proxy that does not read has not seen its clusters. It must not receive listeners that refer to
// them when it reads again.
func TestWatchdogWaitsForAnswers(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		st := h.server.streams.all()[0]
		h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"))
		r, ends := c.expect(resource.Cluster, "c2"), c.expect(resource.Endpoints, "c2")
		for i := range time.Duration(3) {
			st.checkAfter(i * (endpointsTimeout + time.Second))
		}
		c.ack(ends)
		c.quiet()
		c.ack(r)
		c.subscribe(resource.Endpoints, "c2")
		c.take(resource.Endpoints, "c2")
		c.take(resource.Listener, "l2")
	})
}

// TestWatchdogWaitsForEndpointsInFlight: a proxy has requested endpoints of a new cluster before it answered others. They are sent
// once it answers, and the cluster's listener after them.
func TestWatchdogWaitsForEndpointsInFlight(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		st := h.server.streams.all()[0]
		h.commit(endpoints("c1", "2"))
		unread := c.expect(resource.Endpoints, "c1")
		rev := h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"))
		r := c.expect(resource.Cluster, "c2")
		c.subscribe(resource.Endpoints, "c2")
		c.ack(r)
		h.eventually("only endpoints are unanswered", func() bool {
			st.mu.Lock()
			defer st.mu.Unlock()
			return !st.ledger.InFlight(resource.Cluster)
		})
		for i := range time.Duration(3) {
			st.checkAfter(i * (endpointsTimeout + time.Second))
		}
		c.ack(unread)
		c.take(resource.Endpoints, "c2")
		c.take(resource.Listener, "l2")
		h.becomes(rev, "app-1", distribution.StateACKed)
	})
}

// TestLateAnswersDelayNothing: a proxy waits for the addresses of a name, and holds back its answer about clusters. After
// answerTimeout it receives others, and what needs them. Reports tell what it waits for.
func TestLateAnswersDelayNothing(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		st := h.server.streams.all()[0]
		unresolved := h.commit(resolvedCluster("dns", "1"))
		first := c.expect(resource.Cluster, "dns")
		rev := h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"))
		st.checkAfter(answerTimeout)
		second := c.expect(resource.Cluster, "c2")
		ends := c.expect(resource.Endpoints, "c2")
		c.subscribe(resource.Endpoints, "c2")
		l := c.expect(resource.Listener, "l2")
		st.checkAfter(2 * answerTimeout)
		c.ack(ends)
		c.ack(l)
		h.eventually("both revisions are settled", func() bool {
			return h.observer.outcomes(unresolved)[distribution.ACKed] == 1 && h.observer.outcomes(rev)[distribution.ACKed] == 1
		})
		h.becomes(rev, "app-1", distribution.StateACKed)
		h.becomes(unresolved, "app-1", distribution.StateBehind)
		st.mu.Lock()
		reasons := st.reasons([resource.NumTypes]ledger.ResourceStatus{resource.Cluster: ledger.Unanswered})
		require.Equal(t, []string{"dns"}, st.unresolved())
		st.mu.Unlock()
		require.Len(t, reasons, 1)
		require.Equal(t, distribution.CauseUnanswered, reasons[0].Cause)

		c.ack(first)
		c.ack(second)
		h.becomes(unresolved, "app-1", distribution.StateACKed)
		require.Empty(t, st.unresolved())
	})
}

// TestBusyStreamDelaysNoChecks: the watchdog does not wait for the lock of a stream.
func TestBusyStreamDelaysNoChecks(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.warm("")
		st := h.server.streams.all()[0]
		st.mu.Lock()
		defer st.mu.Unlock()
		await.End(t, func() { h.server.check(time.Now()) })
	})
}

// TestMovedStreamsAreCounted: a revision that moves a stream to tables which it does not change concerns the stream, and a
// revision of the tables before does not stay open.
func TestMovedStreamsAreCounted(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		other := table.New("other")
		h.commitTo(other, edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "of the other table"))
		c := h.warm("")
		unread := h.commit(listener("l1", "2"))
		first := c.expect(resource.Listener, "l1")

		h.mu.Lock()
		h.rev++
		moved := h.rev
		h.rebinds[nodeID]([]*table.Table{other, h.in})
		h.mu.Unlock()
		h.server.Publish(moved, nil)
		require.Equal(t, 1, h.observer.published[moved])
		c.ack(first)
		second := c.expect(resource.Listener, "l1")
		require.Empty(t, h.observer.outcomes(moved))
		h.becomes(moved, "app-1", distribution.StateBehind)
		c.ack(second)
		for _, rev := range []model.Revision{unread, moved} {
			h.eventually("the revision is settled", func() bool { return len(h.observer.outcomes(rev)) == 1 })
		}
		p, _ := h.server.Proxy(nodeID)
		require.Equal(t, moved, p.Settled)
	})
}
