package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

// guarded is a workload whose sidecar applies policies. Requests and bytes are sent to the sidecar's address.
type guarded struct {
	*client
	t    *testing.T
	mesh *mesh
	base []string
	web  *backend // the application behind the port guardedHTTP
}

func startGuarded(t *testing.T, more ...string) *guarded {
	t.Helper()
	web := startBackend(t, "web", "v1")
	app := relay(t, fmt.Sprintf("%s:%d", web.ip, web.port))
	says := startSpeaker(t)
	g := &guarded{client: newClient("web"), t: t, web: web}
	g.drain = time.Minute
	g.base = append(more, fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress:
  - {port: {number: %d, name: http, protocol: HTTP}, bind: %s, captureMode: NONE, defaultEndpoint: "127.0.0.1:%d"}
  - {port: {number: %d, name: tcp, protocol: TCP}, bind: %s, captureMode: NONE, defaultEndpoint: "127.0.0.1:%d"}
  - {port: {number: %d, name: tcp-says, protocol: TCP}, bind: %s, captureMode: NONE, defaultEndpoint: "127.0.0.1:%d"}
  egress: [{hosts: ["./*"]}]`,
		guardedHTTP, g.ip, app, guardedTCP, g.ip, app, guardedSays, g.ip, says))
	g.mesh = startMesh(t, server.RoutesAuto, g.base...)
	g.start(t, g.mesh, false)
	return g
}

// startSpeaker starts an application that sends something to every client that connects.
func startSpeaker(t *testing.T) int {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { // ends with the listener
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "welcome\n")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); await.From(t, ended) })
	return ln.Addr().(*net.TCPAddr).Port
}

// hears returns what the application sends to a silent client within silence.
func (g *guarded) hears() string {
	g.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(g.t.Context(), "tcp", fmt.Sprintf("%s:%d", g.ip, guardedSays))
	require.NoError(g.t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(g.t, conn.SetReadDeadline(time.Now().Add(silence)))
	b, _ := io.ReadAll(conn)
	return string(b)
}

// silence is how long a client sends nothing: servers of this machine answer within milliseconds.
const silence = 300 * time.Millisecond

// relay listens on 127.0.0.1, where a sidecar expects its application, for an application at another address.
func relay(t *testing.T, to string) int { return heldRelay(t, to, nil) }

// heldRelay is a relay that passes nothing of its callers on while hold is locked.
func heldRelay(t *testing.T, to string, hold *sync.RWMutex) int {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var relaying sync.WaitGroup
	relaying.Go(func() { // ends with the listener
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			relaying.Go(func() { _, _ = io.Copy(holdable{up, hold}, from); _ = up.Close() })
			relaying.Go(func() { _, _ = io.Copy(from, up); _ = from.Close() })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); relaying.Wait() }) // connections end with the sidecar, before
	return ln.Addr().(*net.TCPAddr).Port
}

// holdable passes nothing on while hold is locked.
type holdable struct {
	io.Writer
	hold *sync.RWMutex
}

func (h holdable) Write(b []byte) (int, error) {
	if h.hold != nil {
		h.hold.RLock()
		defer h.hold.RUnlock()
	}
	return h.Writer.Write(b)
}

// given applies policies.
func (g *guarded) given(policies ...string) {
	g.t.Helper()
	g.mesh.apply(append(append([]string{}, g.base...), policies...)...)
}

// ask returns the status of a request; headers are pairs.
func (g *guarded) ask(method, path string, headers ...string) int {
	g.t.Helper()
	code, _ := g.answer(method, path, headers...)
	return code
}

func (g *guarded) answer(method, path string, headers ...string) (int, http.Header) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, fmt.Sprintf("http://%s:%d%s", g.ip, guardedHTTP, path), http.NoBody)
	require.NoError(g.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	require.NoError(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, resp.Header
}

// greets reports whether bytes from an address get through. (They are a request, which the sidecar does not recognize.)
func (g *guarded) greets(from string) bool {
	g.t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(g.t.Context(), "tcp", fmt.Sprintf("%s:%d", g.ip, guardedTCP))
	require.NoError(g.t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n")
	require.NoError(g.t, err)
	b, _ := io.ReadAll(conn)
	return strings.Contains(string(b), "web-v1")
}

// requireStatus waits for a status: Envoy ACKs before its workers use the new configuration.
func (g *guarded) requireStatus(want int, method, path string, headers ...string) {
	g.t.Helper()
	got := 0
	eventually(g.t, method+" "+path+" is answered as it should", func() bool {
		got = g.ask(method, path, headers...)
		return got == want
	}, func() string { return fmt.Sprintf("%d instead of %d", got, want) })
}

// requireGreets waits until bytes from an address get through, or no longer do.
func (g *guarded) requireGreets(want bool, from string) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("bytes from %s get through: %t", from, want), func() bool { return g.greets(from) == want }, nil)
}
