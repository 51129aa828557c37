package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

func TestRefusedResourceIsHeldUntilItDiffers(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		begin := time.Now()
		h.commit(listener("l1", "bad"))
		c.nack(c.expect(resource.Listener, "l1"), "bad listener")
		h.commit(listener("l2", "good"))
		c.take(resource.Listener, "l2")

		p, ok := h.server.Proxy("app-1.shop")
		require.True(t, ok)
		held := p.Types[2].Held
		require.Len(t, held, 1)
		require.WithinRange(t, held[0].Since, begin, time.Now())
		held[0].Since = time.Time{}
		require.Equal(t, Held{Name: "l1", Version: h.out.State().Get(resource.Listener, "l1").Version, Message: "bad listener"}, held[0])

		h.commit(listener("l1", "good again"))
		c.take(resource.Listener, "l1")
		h.eventually("nothing is held", func() bool {
			p, _ := h.server.Proxy(nodeID)
			return len(p.Types[2].Held) == 0
		})
	})
}

// TestSettlementNamesTheNewestRefusal: a resource of another type that is held since an older revision is
// not the reason.
func TestSettlementNamesTheNewestRefusal(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		texts := make(chan string, 10)
		h := newHarness(t, on, Options{OnSettled: func(s distribution.Settlement) {
			if s.Outcome == distribution.NACKed {
				texts <- s.Text
			}
		}})
		c := h.warm("")
		h.commit(edsCluster("c2", "bad"))
		c.nack(c.expect(resource.Cluster, "c2"), "bad cluster")
		require.Equal(t, "CDS c2: bad cluster", await.From(t, texts))
		h.commit(listener("l1", "bad"))
		c.nack(c.expect(resource.Listener, "l1"), "bad listener")
		require.Equal(t, "LDS l1: bad listener", await.From(t, texts))
	})
}

// TestLongMessagesAreShortenedInLogs: a request may have a message of 32 MB.
func TestLongMessagesAreShortenedInLogs(t *testing.T) {
	var log bytes.Buffer
	st := &stream{server: &Server{log: slog.New(slog.NewTextHandler(&log, nil))}, proxy: &model.Proxy{ID: "a"}}
	r := &request{}
	r.Error = &ledger.Error{Message: "first" + strings.Repeat(" word", 1<<20) + " last"}
	st.reportNACK(r)
	require.Less(t, log.Len(), 2000)
	require.Contains(t, log.String(), "first word")
	require.Contains(t, log.String(), "word last")
}

// TestOnlyWhatIsRefusedCountsAsRefused refuses a listener while an older change of a cluster and a newer one of endpoints are
// unanswered. The proxy accepts those.
func TestOnlyWhatIsRefusedCountsAsRefused(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		c.subscribe(resource.Endpoints, "c2")
		c.take(resource.Endpoints, "-c2")
		older := h.commit(edsCluster("c1", "2"))
		cluster := c.expect(resource.Cluster, "c1")
		c.take(resource.Endpoints, "c1")
		refused := h.commit(listener("l1", "bad"))
		bad := c.expect(resource.Listener, "l1")
		newer := h.commit(endpoints("c2", "1"))
		ends := c.expect(resource.Endpoints, "c2")
		c.nack(bad, "no")
		h.eventually("it is held back", func() bool { return len(h.server.Refusals()) == 1 })
		c.ack(cluster)
		c.ack(ends)
		for rev, want := range map[model.Revision]distribution.Outcome{older: distribution.ACKed, refused: distribution.NACKed, newer: distribution.ACKed} {
			h.eventually("the change is settled", func() bool { return len(h.observer.outcomes(rev)) == 1 })
			require.Equal(t, map[distribution.Outcome]int{want: 1}, h.observer.outcomes(rev), "revision %d", rev)
		}
	})
}

// TestAllOfARefusedResponseCountsAsRefused refuses a response with two changes, and then another, while an older change is
// unanswered. The refused changes settle after all of this.
func TestAllOfARefusedResponseCountsAsRefused(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		var refused []model.Revision
		older := h.commit(edsCluster("c1", "2"))
		cluster := c.expect(resource.Cluster, "c1")
		c.take(resource.Endpoints, "c1")
		h.commit(listener("l1", "2"))
		first := c.expect(resource.Listener, "l1")
		refused = append(refused, h.commit(listener("l1", "bad")), h.commit(listener("l2", "bad")))
		c.ack(first)
		c.nack(c.expect(resource.Listener, "l1", "l2"), "no")
		c.nack(c.expect(resource.Listener, "l1"), "no")
		c.nack(c.expect(resource.Listener, "l2"), "no")
		h.eventually("both are held back", func() bool { return len(h.server.Refusals()) == 2 })
		refused = append(refused, h.commit(listener("l1", "worse")))
		c.nack(c.expect(resource.Listener, "l1"), "no")
		h.eventually("it is held back", func() bool { return !h.inFlight() })
		c.ack(cluster)
		for _, rev := range refused {
			h.eventually("the change is settled", func() bool { return len(h.observer.outcomes(rev)) == 1 })
			require.Equal(t, map[distribution.Outcome]int{distribution.NACKed: 1}, h.observer.outcomes(rev), "revision %d", rev)
		}
		require.Len(t, h.observer.outcomes(older), 1)
	})
}

// TestRefusalsAreText: a proxy's message is shown to clients whose decoders accept only UTF-8, however it is encoded and cut.
func TestRefusalsAreText(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		for i, message := range []string{"bad \xff\xc3 bytes", strings.Repeat("ü", 1000), "x" + strings.Repeat("ü", 1000)} {
			h.commit(listener("l1", fmt.Sprint("bad", i)))
			r := c.expect(resource.Listener, "l1")
			nack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
			said := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), message)
			nack.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), said)) // error_detail
			c.send(nack)
			version := h.out.State().Get(resource.Listener, "l1").Version
			h.eventually("it is held back", func() bool {
				p, _ := h.server.Proxy(nodeID)
				held := p.Types[2].Held
				return len(held) == 1 && held[0].Version == version && utf8.ValidString(held[0].Message) && len(held[0].Message) > 10
			})
		}
	})
}

// later runs the watchdog's check of all streams, at a later time.
func (h *harness) later(d time.Duration) {
	for _, st := range h.server.streams.all() {
		st.checkAfter(d)
	}
}

// checkAfter runs the watchdog's check at a later time.
func (st *stream) checkAfter(d time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.check(time.Now().Add(d))
}

// TestTemporaryRefusalsAreRetried: a listener that Envoy refuses because of a plugin's module is
// sent again, at growing intervals and a limited number of times. It is held back until it is
// accepted, and no other listener is sent again.
func TestTemporaryRefusalsAreRetried(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(listener("l1", "bad"))
		c.nack(c.expect(resource.Listener, "l1"), "no such filter")
		h.eventually("it is held back", func() bool { return len(h.server.Refusals()) == 1 })
		h.later(time.Hour)
		h.later(time.Hour)

		const words = "Error adding/updating listener(s) l1: Unable to create Wasm plugin p"
		rev := h.commit(listener("l1", "worse"))
		c.nack(c.expect(resource.Listener, "l1"), words)
		h.eventually("it is settled", func() bool { return h.observer.outcomes(rev)[distribution.NACKed] == 1 })
		h.later(0)
		h.later(watchEvery - time.Second)
		refused := func() bool { return len(h.server.Refusals()) == 1 && h.server.Refusals()[0].Message == words }
		for n := range maxTries {
			h.later(time.Duration(n+1) * time.Hour)
			again := c.expect(resource.Listener, "l1")
			require.True(t, refused(), "until it is accepted")
			c.nack(again, words)
			h.eventually("it is held back", func() bool { return !h.inFlight() })
		}
		require.True(t, refused())
		h.later(100 * time.Hour)
		require.False(t, h.inFlight(), "it was retried maxTries times")
		require.Equal(t, map[distribution.Outcome]int{distribution.NACKed: 1}, h.observer.outcomes(rev), "the outcome of the change is reported once")

		h.commit(listener("l1", "worst"))
		c.nack(c.expect(resource.Listener, "l1"), words)
		h.eventually("it is held back", func() bool { return !h.inFlight() })
		h.later(0)
		h.later(time.Hour)
		c.take(resource.Listener, "l1")
		h.eventually("it is accepted", func() bool { return len(h.server.Refusals()) == 0 })
		h.later(time.Hour)
		require.False(t, h.inFlight())
	})
}

// inFlight reports whether a listener is unanswered.
func (h *harness) inFlight() bool {
	for _, st := range h.server.streams.all() {
		st.mu.Lock()
		flies := st.ledger != nil && st.ledger.InFlight(resource.Listener)
		st.mu.Unlock()
		if flies {
			return true
		}
	}
	return false
}

// abouts returns the names of the resources that a refusal may be about.
func abouts(r *distribution.Refusal) (out []string) {
	for _, p := range r.About {
		out = append(out, p.Type.String()+" "+p.Entry.Name)
	}
	return out
}

func TestRefusalsCountProxies(t *testing.T) {
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
		require.Equal(t, "bad", r.Message, "the first message in alphabetical order")
		require.Equal(t, []string{"LDS l1"}, abouts(r))
		require.Equal(t, "shop", r.About[0].Proxy.Namespace, "it is one of the proxies that refuse")

		h.commit(listener("l1", "good"))
		require.Empty(t, h.server.Refusals(), "the table no longer has what they refused")
		one.take(resource.Listener, "l1")
		two.take(resource.Listener, "l1")
	})
}

func TestRefusalListsNewVirtualHosts(t *testing.T) {
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
