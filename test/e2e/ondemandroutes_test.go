package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// onDemandRoutes is onDemand with shards on demand from the first virtual host on.
func onDemandRoutes(o *controlplane.Options) {
	onDemand(o)
	o.Sharding = fewBuckets(1)
}

// TestRoutesOnDemand makes the first calls of services with each kind of request. Before them the sidecar has no routes;
// after them it has the shards of the services that were called, and every request reached its service once.
func TestRoutesOnDemand(t *testing.T) {
	web, begun := startApp(t, "web", "v1"), make(chan struct{})
	web.handle = func(w http.ResponseWriter, r *http.Request) {
		if n, _ := r.Body.Read(make([]byte, 1)); n > 0 && r.Host == "streamed" {
			close(begun)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "web-v1")
	}
	c := newClient("client")
	docs := []string{c.sidecar("./*"), service("web", web), service("posted", web), service("large", web), service("streamed", web)}
	docs = append(docs, service("faulty", web), routes("faulty", "{fault: {abort: {httpStatus: 418, percentage: {value: 100}}}, route: [{destination: {host: faulty}}]}"))
	m := startMeshWith(t, server.RoutesAuto, onDemandRoutes, docs...)
	c.start(t, m, false)
	require.Empty(t, shardsOf(t, c), "shards before the first call")

	for _, call := range []struct {
		host   string
		body   io.Reader
		answer string
	}{
		{"web", nil, "web-v1"},
		{"posted", strings.NewReader("a body"), "web-v1"},
		{"large", bytes.NewReader(make([]byte, 900_000)), "web-v1"},
		{"streamed", io.MultiReader(strings.NewReader("one"), &late{text: "two", begun: begun}), "web-v1"},
		{"faulty", strings.NewReader("a body"), "fault filter abort"},
	} {
		t.Run(call.host, func(t *testing.T) {
			before := web.served.Load()
			method := http.MethodGet
			if call.body != nil {
				method = http.MethodPost
			}
			ctx, cancel := context.WithTimeout(t.Context(), callLimit)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, method, c.url(), call.body)
			require.NoError(t, err)
			req.Host, req.Close = call.host, true
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, call.answer, string(text), resp.Status)
			if call.answer == "web-v1" {
				before++
			}
			require.Equal(t, before, web.served.Load())
		})
	}
	require.NotEmpty(t, shardsOf(t, c))
	require.Less(t, len(shardsOf(t, c)), 8)
	noRefusals(t, m, c)
	requireQuiet(t, c.bareEnvoy)
}

// late is a part of a body that comes when the server has received the part before it.
type late struct {
	text  string
	begun <-chan struct{}
	done  bool
}

func (l *late) Read(p []byte) (int, error) {
	if l.done {
		return 0, io.EOF
	}
	l.done = true
	select {
	case <-l.begun:
	case <-time.After(callLimit):
		return 0, errors.New("the server received nothing before the body ended")
	}
	return copy(p, l.text), nil
}

// shardsOf returns the names of the shards of routes that a sidecar has.
func shardsOf(t *testing.T, c *client) (out []string) {
	t.Helper()
	for name := range c.dump(t).holdings {
		if rc, ok := strings.CutPrefix(name, "RDS "); ok && routeshard.IsOnDemand(rc) {
			out = append(out, rc)
		}
	}
	return out
}

// TestOutboundModeChanges changes the mode of a namespace there and back under traffic, to a host that is called all the
// time and to hosts that are called for the first time. No call may fail.
func TestOutboundModeChanges(t *testing.T) {
	web := startApp(t, "web", "v1")
	c := newClient("client")
	c.drain = time.Minute // a mode has listeners of its kind; calls on replaced ones end by themselves
	docs := []string{c.sidecar("./*"), service("web", web)}
	for i := range 20 {
		docs = append(docs, service(cold(i), web))
	}
	mode := func(outbound string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {%s: %s}}", model.AnnotationOutbound, outbound)
	}
	modes := []string{string(model.DeliverFull), string(model.DeliverOnDemand)}
	for _, first := range modes {
		t.Run(first, func(t *testing.T) {
			m := startMeshSplit(t, server.RoutesAuto, 1, append(docs[:len(docs):len(docs)], mode(first))...)
			c := *c
			c.start(t, m, false)
			calls := startTraffic(t, &c, "web")
			calls.requireOnly("web-v1")
			called := 0
			for round := range 4 {
				next := modes[(slices.Index(modes, first)+1+round)%2]
				m.apply(append(docs[:len(docs):len(docs)], mode(next))...)
				callAll(t, &c, called, called+5)
				called += 5
				awaitMode(t, m, c.name, next == string(model.DeliverOnDemand))
				calls.requireOnly("web-v1")
			}
			calls.stop()
			noRefusals(t, m, &c)
			c.process.Kill()
		})
	}
}

// awaitMode waits until a sidecar gets its configuration on demand, or all of it.
func awaitMode(t *testing.T, m *mesh, name string, onDemand bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("the sidecar has the mode; on demand: %t", onDemand), func() bool {
		p := m.proxy(name)
		return p != nil && slices.ContainsFunc(p.Tables, func(name string) bool {
			return strings.HasPrefix(name, "outbound") && strings.Contains(name, "/on-demand") == onDemand
		})
	}, func() string { return describe(m.proxies()) })
}

// TestOutboundAuto adds and removes services under traffic, so that the mode of a sidecar changes by their number. Between the
// two limits it stays as it is. No call may fail, also of hosts that are called for the first time.
func TestOutboundAuto(t *testing.T) {
	const from = 20
	web := startApp(t, "web", "v1")
	c := newClient("client")
	c.drain = time.Minute // a mode has listeners of its kind; calls on replaced ones end by themselves
	docs := []string{c.sidecar("./*"), service("web", web)}
	for i := range 2 * from {
		docs = append(docs, service(cold(i), web))
	}
	with := func(services int) []string { return docs[:1+services] }
	m := startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) {
		o.Sharding = fewBuckets(1)
		o.Mesh.Delivery, o.Mesh.OnDemandFrom = model.DeliverAuto, from
	}, with(from-1)...)
	c.start(t, m, false)
	calls := startTraffic(t, c, "web")
	calls.requireOnly("web-v1")
	for _, step := range []struct {
		services int
		onDemand bool
	}{{from, true}, {2 * from, true}, {from * 3 / 4, true}, {from*3/4 - 1, false}, {from - 1, false}, {2 * from, true}} {
		m.apply(with(step.services)...)
		callAll(t, c, step.services/2, step.services-1)
		awaitMode(t, m, c.name, step.onDemand)
		calls.requireOnly("web-v1")
	}
	calls.stop()
	noRefusals(t, m, c)
}
