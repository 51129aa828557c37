package controlplane

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// page reads a debug page; others is the value of its header.
func (p *identityPlane) page(path string, into any) (status int, others string) {
	p.t.Helper()
	resp, err := http.Get("http://" + p.http + path)
	require.NoError(p.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	require.NoError(p.t, resp.Body.Close())
	p.t.Cleanup(http.DefaultClient.CloseIdleConnections)
	switch into := into.(type) {
	case nil:
	case *string:
		*into = string(body)
	default:
		require.NoError(p.t, json.Unmarshal(body, into), string(body))
	}
	return resp.StatusCode, resp.Header.Get(debug.HeaderOthers)
}

// explains waits for a state of cart-2.
func (p *identityPlane) explains(query string, is func(*explain.Explanation) bool) *explain.Explanation {
	p.t.Helper()
	var last *explain.Explanation
	require.Eventually(p.t, func() bool {
		last = &explain.Explanation{}
		p.page("/debug/explain/Pod/shop/cart-2"+query, last)
		return is(last)
	}, time.Minute, 5*time.Millisecond)
	return last
}

// move gives cart-2 another address on one of the control planes.
func (m *mesh) move(i int, address string) {
	m.t.Helper()
	text := strings.ReplaceAll(ownersYAML, "10.1.1.2", address)
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dirs[i], "shop.yaml"), []byte(text), 0o600))
}

// connect returns a caller that has everything.
func (p *identityPlane) connect(name, ip string, endpoints ...string) *caller {
	p.t.Helper()
	c := connectCaller(p.t, p.dial(p.must("web-token")), name, ip, nil)
	c.receives(endpoints...)
	c.ack()
	return c
}

// TestExplainsForAll checks that an object's change is everywhere when each control plane has that version,
// and its proxies have it.
func TestExplainsForAll(t *testing.T) {
	m := newMesh(t)
	first, second := m.add(), m.add()
	slow, quick := first.connect("web-1", "10.1.0.1", "10.1.1.1", "10.1.1.2"), second.connect("web-2", "10.1.0.2", "10.1.1.1", "10.1.1.2")

	m.move(1, "10.1.1.3")
	quick.receives("10.1.1.1", "10.1.1.3")
	quick.ack()
	e := second.explains("?", func(e *explain.Explanation) bool { return e.Counts.Acked == 1 })
	require.False(t, e.Everywhere(), "the first control plane has not seen it")
	require.Len(t, e.Elsewhere, 1)
	require.Equal(t, first.secure, e.Elsewhere[0].ControlPlane)
	require.Equal(t, explain.OtherVersion, e.Elsewhere[0].State)
	require.Equal(t, changelog.Distributing, e.State)
	require.Zero(t, e.Elsewhere[0].Counts, "of another version it tells nothing")

	m.move(0, "10.1.1.3")
	slow.receives("10.1.1.1", "10.1.1.3")
	e = second.explains("?", func(e *explain.Explanation) bool { return e.Everywhere() })
	require.Equal(t, 1, e.Counts.Acked)
	require.Equal(t, 1, e.Counts.Behind)
	require.Equal(t, changelog.Distributing, e.State)
	require.Len(t, e.Proxies, 1)
	require.Equal(t, "web-1", e.Proxies[0].Name)
	require.Equal(t, first.secure, e.Proxies[0].ControlPlane)
	e = second.explains("?local", func(e *explain.Explanation) bool { return e.State == changelog.Distributed })
	require.Equal(t, 1, e.Counts.Concerned())
	require.Empty(t, e.Elsewhere)

	slow.ack()
	e = second.explains("?all", func(e *explain.Explanation) bool { return e.State == changelog.Distributed })
	require.True(t, e.Everywhere())
	require.Equal(t, 2, e.Counts.Acked)
	require.Len(t, e.Proxies, 2)
}

// TestNamesSilentPeers checks that nothing counts as everywhere while a control plane does not answer, and
// that metrics show it.
func TestNamesSilentPeers(t *testing.T) {
	silent, gone := unreached(t)
	m := newMesh(t)
	m.add()
	p := m.add(silent, gone)
	p.connect("web-1", "10.1.0.1", "10.1.1.1", "10.1.1.2")
	e := p.explains("?within=50ms", func(e *explain.Explanation) bool { return len(e.Elsewhere) == 2 })
	require.False(t, e.Everywhere(), "it is named in time")
	e = p.explains("?", func(e *explain.Explanation) bool {
		return len(e.Elsewhere) == 2 && strings.Contains(e.Elsewhere[0].Silent+e.Elsewhere[1].Silent, "no answer for ")
	})
	require.False(t, e.Everywhere())
	for _, o := range e.Elsewhere {
		require.Equal(t, o.ControlPlane == silent, o.Lacks(), "%+v", o)
	}
	var list debug.ProxyList
	p.page("/debug/proxies", &list)
	require.Len(t, list.Proxies, 1)
	require.Len(t, list.Others, 2)
	var stale explain.Stale
	p.page("/debug/stale", &stale)
	require.Len(t, stale.Others, 2)
	var failure debug.Failure
	p.page("/debug/proxies/unknown", &failure)
	require.Contains(t, failure.Next, silent)
	require.Eventually(t, func() bool {
		var text string
		p.page("/metrics", &text)
		return strings.Contains(text, `moonsail_control_planes{state="known"} 2`) &&
			strings.Contains(text, `moonsail_control_planes{state="answering"} 1`) &&
			strings.Contains(text, `moonsail_control_planes{state="silent"} 1`) &&
			strings.Contains(text, `moonsail_control_plane_questions_failed_total{question="Hello"}`)
	}, time.Minute, 10*time.Millisecond)
}

// TestListsAllProxies checks that proxies are listed with their control planes, or those of one on request.
func TestListsAllProxies(t *testing.T) {
	m := newMesh(t)
	first, second := m.add(), m.add()
	first.connect("web-1", "10.1.0.1", "10.1.1.1", "10.1.1.2")
	second.connect("web-2", "10.1.0.2", "10.1.1.1", "10.1.1.2")
	var list debug.ProxyList
	_, others := second.page("/debug/proxies", &list)
	require.Empty(t, others, "it is about all")
	require.Len(t, list.Proxies, 2)
	require.Equal(t, "web-1", list.Proxies[0].Name)
	require.Equal(t, first.secure, list.Proxies[0].ControlPlane)
	require.Equal(t, "web-2", list.Proxies[1].Name)
	require.Empty(t, list.Proxies[1].ControlPlane)
	require.Equal(t, []explain.PeerQuery{{ControlPlane: first.secure}}, list.Others)

	var own debug.ProxyList
	_, others = second.page("/debug/proxies?local", &own)
	require.Equal(t, "1", others)
	require.Len(t, own.Proxies, 1)
	require.Equal(t, "web-2", own.Proxies[0].Name)

	var detail debug.ProxyDetail
	second.page("/debug/proxies/web-1.shop", &detail)
	require.Equal(t, first.secure, detail.Proxy.ControlPlane)
	require.Equal(t, "web-1", detail.Node.Name)
	status, others := second.page("/debug/proxies/web-1.shop?local", nil)
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, "1", others, "it may be with another one")
	status, _ = second.page("/debug/proxies/unknown", nil)
	require.Equal(t, http.StatusNotFound, status)
}

// TestMovedProxiesAreNotDisconnected checks that a proxy which moved to another control plane is not disconnected.
func TestMovedProxiesAreNotDisconnected(t *testing.T) {
	m := newMesh(t)
	first, second := m.add(), m.add()
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop}
spec: {serviceAccountName: web}
status: {podIP: 10.1.0.1, phase: Running}
`
	for _, dir := range m.dirs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(pod), 0o600))
	}
	first.connect("web-1", "10.1.0.1", "10.1.1.1", "10.1.1.2").cancel()
	before := first.explains("?local", func(e *explain.Explanation) bool { return e.Exists }).ResourceVersion
	m.move(0, "10.1.1.3")
	m.move(1, "10.1.1.3")
	first.explains("?local", func(e *explain.Explanation) bool { return e.ResourceVersion != before && e.Counts.Disconnected == 1 })
	e := second.explains("?", func(e *explain.Explanation) bool {
		return e.ResourceVersion != before && e.Everywhere() && e.Counts.Disconnected == 1
	})
	require.Equal(t, distribution.StateDisconnected, e.Proxies[0].Position)
	require.Equal(t, first.secure, e.Proxies[0].ControlPlane)
	second.connect("web-1", "10.1.0.1", "10.1.1.1", "10.1.1.3")
	second.explains("?", func(e *explain.Explanation) bool { return e.Everywhere() && e.Counts.Disconnected == 0 })
}
