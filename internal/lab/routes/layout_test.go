package routes

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// patience is the time limit of conditions, long enough for a busy machine.
const patience = time.Minute

// rig is one layout on a real Envoy, in front of an application that reports the requests that reach it.
type rig struct {
	*subject
	t       *testing.T
	ctx     context.Context
	headers chan http.Header
}

func startRig(t *testing.T, l layout, services int) *rig {
	t.Helper()
	r := &rig{t: t, headers: make(chan http.Header, 100)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { r.headers <- req.Header }))
	t.Cleanup(app.Close)
	binary, err := envoy.Find("")
	require.NoError(t, err)
	r.subject = &subject{layout: l, mesh: newMesh(services)}
	t.Cleanup(r.stop)
	o := &Options{Envoy: binary.Path, Workers: 1}
	require.NoError(t, r.start(r.ctx, o, &upstream{listener: app.Listener}))
	require.Empty(t, r.proxy.early, "a listener must not take connections before its routes are there")
	return r
}

// routed waits until requests for a host take a route.
func (r *rig) routed(where, host, want string) {
	r.t.Helper()
	var got string
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var err error
		if got, err = ask(r.ctx, where, host); err == nil && got == want {
			return
		}
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			r.t.Fatalf("%s: %q, not %q", host, got, want)
		}
	}
}

func (r *rig) trouble() error {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.server.trouble
}

func (r *rig) send(items ...item) {
	r.t.Helper()
	_, err := r.server.change(r.ctx, items)
	require.NoError(r.t, err)
}

func TestLayouts(t *testing.T) {
	for _, l := range Layouts() {
		if l.make == nil {
			continue // TestProduct covers it
		}
		t.Run(l.Name, func(t *testing.T) {
			r := startRig(t, l.make(), 60)
			r.next = 7
			before, err := r.proxy.received(r.ctx)
			require.NoError(t, err)
			_, err = r.changeOne(r.ctx)
			require.NoError(t, err)
			after, err := r.proxy.received(r.ctx)
			require.NoError(t, err)
			require.Greater(t, after, before)
			kept, err := r.proxy.admin.Stats(r.ctx, `^(cluster\.upstream|vhost)\.`)
			require.NoError(t, err)
			require.Empty(t, kept, "sidecars keep none of them, and what an Envoy keeps counts")
			require.Equal(t, 1, r.mesh.versions[7])
			r.routed(r.where, "svc-7.ns-7", "200 svc-7/1")
			r.routed(r.where, "svc-7.ns-7.svc.cluster.local:80", "200 svc-7/1")
			r.routed(r.where, "svc-8.ns-8.svc", "200 svc-8/0")
			r.routed(r.where, "unknown", "200 "+fallback)
			r.routed(r.where, "a.wild-1.example.com", "200 wild-1")
			if l.Name == "srds" { // the product does not use it, for this reason
				r.routed(r.where, "svc-99.ns-0", "404 ")
				r.routed(r.where, "SVC-8.ns-8", "404 ")
				r.routed(r.where, "10.96.0.7", "200 "+fallback)
				return
			}
			r.routed(r.where, "svc-99.ns-0", "200 "+fallback)
			r.routed(r.where, "SVC-8.Ns-8:80", "200 svc-8/0")
			r.routed(r.where, "10.96.0.7", "200 svc-7/1")
			require.NoError(t, r.trouble())
		})
	}
}

// Envoy must compute the same shard as the lab: no other shard has the route.
func TestEnvoyComputesSameShard(t *testing.T) {
	r := startRig(t, bucketed{routeConfig, routeshard.MaxBits}, 1)
	hosts := []string{"reviews", "productpage.shop", "x_y-z", "3scale.shop", "10.1.2.3:80", "[fd00::1f]", "[fd00::2]:80", "Z", "-a", "*.b", "a~b", "0:1"}
	for i := range 60 {
		hosts = append(hosts, host(1+i*79))
	}
	for _, h := range hosts {
		rc := bucketed{routeConfig, routeshard.MaxBits}.name(routeshard.Of(h, routeshard.MaxBits))
		domain := h
		if i := strings.LastIndexByte(h, ':'); i > 0 && !strings.HasSuffix(h, "]") {
			domain = h[:i]
		}
		v, err := virtualHost(rc, domain, []string{strings.ToLower(domain)}, "probe")
		require.NoError(t, err)
		r.send(hostItems([]*routev3.VirtualHost{v})...)
		r.routed(r.where, h, "200 probe")
	}
}

func TestShardsLoseAndGainHosts(t *testing.T) {
	b := bucketed{routeConfig, 4}
	r := startRig(t, b, 20)
	items, err := b.changed(r.mesh, 3)
	require.NoError(t, err)
	gone := slices.Clone(items)
	for i := range gone {
		gone[i].message = nil
	}
	r.send(gone...)
	r.routed(r.where, "svc-3.ns-3", "200 "+fallback)
	r.routed(r.where, "10.96.0.3", "200 "+fallback)
	r.routed(r.where, "svc-4.ns-4", "200 svc-4/0")
	r.send(items...)
	r.routed(r.where, "svc-3.ns-3", "200 svc-3/0")
}

// A client cannot choose a scope with the header, and applications do not see it.
func TestScopeHeaderStaysInside(t *testing.T) {
	r := startRig(t, bucketed{routeConfig, 4}, 20)
	for len(r.headers) > 0 {
		<-r.headers
	}
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, "http://"+r.where, http.NoBody)
	require.NoError(t, err)
	req.Host = "svc-5.ns-5"
	req.Header.Add(scopeHeader, "80~0")
	req.Header.Add(scopeHeader, "80~1")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "svc-5/0", resp.Header.Get(versionName))
	require.NotContains(t, <-r.headers, http.CanonicalHeaderKey(scopeHeader))
}

// The scopes of a second listener come with the same subscription, its route configurations by a request for their
// names, and its virtual hosts without one.
func TestSecondListener(t *testing.T) {
	r := startRig(t, bucketed{routeConfig, 4}, 20)
	second := bucketed{"81", 4}
	items, err := second.all(r.mesh)
	require.NoError(t, err)
	var scopes []item
	for _, it := range items {
		if it.url == scopeURL {
			scopes = append(scopes, it)
		} else {
			require.NoError(t, r.server.put([]item{it}))
		}
	}
	ln, err := listener(r.mesh, second, "second")
	require.NoError(t, err)
	r.send(append(scopes, item{resource.ListenerURL, "second", ln})...)
	where, _, err := r.proxy.ready(r.ctx, "second", host(2), "svc-2/0")
	require.NoError(t, err)
	t.Logf("answers of the second listener before it was ready: %q", r.proxy.early)
	r.routed(where, "unknown", "200 "+fallback)
	r.routed(r.where, "svc-2.ns-2", "200 svc-2/0")

	gone := slices.Clone(scopes)
	for i := range gone {
		gone[i].message = nil
	}
	r.send(gone...)
	r.routed(where, "svc-2.ns-2", "404 ")
	r.routed(r.where, "svc-2.ns-2", "200 svc-2/0")

	r.send(scopes...) // Envoy subscribes to the route configurations again, and lacks all virtual hosts
	r.routed(where, "svc-2.ns-2", "200 svc-2/0")
	require.NoError(t, r.trouble())
}

// A listener that is replaced keeps the route configurations of its scopes.
func TestReplacedListener(t *testing.T) {
	b := bucketed{routeConfig, 4}
	r := startRig(t, b, 20)
	ln, err := listener(r.mesh, b, listenerName)
	require.NoError(t, err)
	ln.StatPrefix = "other"
	r.send(item{resource.ListenerURL, listenerName, ln})
	r.routed(r.where, "svc-2.ns-2", "200 svc-2/0")
	_, err = r.changeOne(r.ctx)
	require.NoError(t, err)
	r.routed(r.where, "svc-0.ns-0", "200 svc-0/1")
	require.NoError(t, r.trouble())
}

// An Envoy that reconnects lists what it has, and receives changes as before.
func TestReconnect(t *testing.T) {
	r := startRig(t, bucketed{routeConfig, 4}, 20)
	addr := r.server.listener.Addr().String()
	old := r.server
	old.stop()
	again := &server{resources: old.resources, order: old.order, version: old.version}
	var config net.ListenConfig
	ln, err := config.Listen(r.ctx, "tcp", addr)
	require.NoError(t, err)
	again.serve(ln)
	r.server = again
	var asked []string
	require.Eventually(t, func() bool {
		again.mu.Lock()
		defer again.mu.Unlock()
		if again.stream == nil {
			return false
		}
		asked = again.stream.log
		return len(asked) == 4
	}, patience, 10*time.Millisecond)
	t.Logf("asked for: %q", asked)
	require.Contains(t, asked, "VirtualHost 0 names, 200 held", "20 names and 20 addresses; 4 wildcards and a fallback in each of 32 buckets")
	_, err = r.changeOne(r.ctx)
	require.NoError(t, err)
	r.routed(r.where, "svc-0.ns-0", "200 svc-0/1")
}
