package chaos

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnswers(t *testing.T) {
	open := world{route: none, auth: none, mtls: strict, endpoints: "v1,v2"}
	with := func(change func(*world)) world {
		w := open
		change(&w)
		return w
	}
	for _, tt := range []struct {
		name string
		call call
		w    world
		want []string
	}{
		{"any version", call{"c1", "s1", protoHTTP1}, open, []string{"v1", "v2"}},
		{"one endpoint", call{"c1", "s1", protoTCP}, with(func(w *world) { w.endpoints = "v2" }), []string{"v2"}},
		{"a route", call{"c1", "s1", protoGRPC}, with(func(w *world) { w.route = "v1" }), []string{"v1"}},
		{"a route does not concern TCP", call{"c1", "s1", protoTCP}, with(func(w *world) { w.route = abort }), []string{"v1", "v2"}},
		{"a route to a version without endpoints", call{"c1", "s1", protoHTTP2}, with(func(w *world) { w.route, w.endpoints = "v1", "v2" }), []string{unrouted}},
		{"denied", call{"c1", "s1", protoHTTP1}, with(func(w *world) { w.auth = "deny:c1" }), []string{denied, denied}},
		{"another is denied", call{"c2", "s1", protoHTTP1}, with(func(w *world) { w.auth = "deny:c1" }), []string{"v1", "v2"}},
		{"not allowed", call{"c2", "s1", protoTCP}, with(func(w *world) { w.auth = "allow:c1" }), []string{denied, denied}},
		{"aborted before a policy denies", call{"c1", "s1", protoHTTP1}, with(func(w *world) { w.route, w.auth = abort, "deny:c1" }), []string{aborted}},
		{"plain text", call{"", "s1-v2", plainCall}, open, []string{refused}},
		{"plain text, permissive", call{"", "s1-v2", plainCall}, with(func(w *world) { w.mtls = none }), []string{"v2"}},
		{"plain text, not allowed", call{"", "s1-v2", plainCall}, with(func(w *world) { w.mtls, w.auth = permissive, "allow:c1" }), []string{denied}},
		{"an external host", call{"c1", "e1", protoHTTP1}, world{entry: "b"}, []string{"b"}},
		{"no external host", call{"c1", "e1", protoHTTP1}, world{entry: none}, []string{unrouted}},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, tt.call.answers(tt.w)) })
	}
}

// TestRouteWithoutItsSubsets: an API server's watches may show a route before the DestinationRule that was written first.
func TestRouteWithoutItsSubsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		for object, state := range map[string]string{"auth/s1": none, "endpoints/s1": "v1", "mtls/s1": strict, "route/s1": none} {
			h.ack(object, h.begin(object, state), time.Now())
		}
		elapse(time.Hour)
		judge := func() string { return h.why(call{"c1", "s1", protoHTTP1}, 0, unrouted) }
		n := h.begin("route/s1", "v1")
		elapse(time.Millisecond)
		require.NotEmpty(t, judge(), "files are read together")
		h.unordered = true
		require.Empty(t, judge())
		h.ack("route/s1", n, time.Now())
		elapse(2 * grace)
		require.NotEmpty(t, judge(), "both have been seen")
	})
}

// why judges an answer to a call that has ended now and took some time.
func (h *history) why(c call, took time.Duration, answer string) string {
	_, why := h.judge(c, time.Now().Add(-took), time.Now(), answer)
	return why
}

// elapse lets time pass on the fake clock of synctest.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // takes no real time

// TestJudge goes through the life of one policy: a request is judged by all states that it may have met.
func TestJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		for object, state := range map[string]string{"auth/s1": none, "endpoints/s1": "v1", "mtls/s1": strict} {
			h.ack(object, h.begin(object, state), time.Now())
		}
		tcp := call{"c1", "s1", protoTCP}
		judge := func(answer string, ago time.Duration) string {
			return h.why(tcp, ago, answer)
		}
		elapse(time.Hour)
		require.Empty(t, judge("v1", time.Second))
		require.Contains(t, judge("v2", time.Second), "answered v2")
		require.Contains(t, judge(denied, time.Second), "every state in force at some moment of it gives v1")

		n := h.begin("auth/s1", "deny:c1")
		elapse(time.Minute)
		require.Empty(t, judge("v1", time.Second), "not ACKed yet")
		require.Empty(t, judge(denied, time.Second), "it may be in force")
		h.ack("auth/s1", n, time.Now())
		elapse(grace / 2)
		require.Empty(t, judge("v1", 0), "workers may lag")
		elapse(grace)
		require.Contains(t, judge("v1", 0), "gives denied")
		require.Empty(t, judge("v1", time.Minute), "it began before the ACK")
		http := call{"c1", "s1", protoHTTP1}
		h.ack("route/s1", h.begin("route/s1", none), time.Now())
		require.Empty(t, h.why(http, 0, "v1"), "its connection may be older than the policy")
		elapse(drainGrace)
		require.NotEmpty(t, h.why(http, 0, "v1"))

		require.NotEmpty(t, judge(failed, time.Second))
		n = h.begin("mtls/s1", permissive)
		h.ack("mtls/s1", n, time.Now())
		elapse(drainTime)
		require.Empty(t, h.why(http, 0, failed), "a drained connection ends")
		require.NotEmpty(t, judge(failed, 0), "a new connection is not drained")
		elapse(2 * grace)
		require.NotEmpty(t, h.why(http, 0, failed))

		h.begin("mtls/s1", none)
		n = h.begin("mtls/s1", strict)
		elapse(time.Minute)
		require.Empty(t, h.why(http, 0, failed), "either may be in force since a moment ago")
		h.ack("mtls/s1", n, time.Now())
		elapse(drainTime + 2*grace)
		require.NotEmpty(t, h.why(http, 0, failed), "the version that never got an ACK is gone, too")
		end := h.disturb("s1-v2")
		elapse(time.Millisecond)
		require.Empty(t, judge(failed, 0))
		require.NotEmpty(t, judge("v1", 0), "a fault must not open it")
		end()
		elapse(2 * grace)
		require.NotEmpty(t, judge(failed, 0))
	})
}
