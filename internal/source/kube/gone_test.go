package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/kubetest"
)

// forgetful stands before a real API server. While it is told to, it ends every watch, and
// answers new ones as an API server does that no longer knows the version they ask for.
type forgetful struct {
	proxy *httputil.ReverseProxy

	mu      sync.Mutex // guards all below
	gone    func(http.ResponseWriter)
	refused map[string]int // watches by path
	lists   map[string]int
	cut     context.CancelFunc // ends the watches that run
	ctx     context.Context
}

// gonePlain is the answer to a watch whose version is too old, goneEvent what ends one that
// has begun.
const (
	gonePlain = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version: 1 (2)"}`
	goneEvent = `{"type":"ERROR","object":` + gonePlain + "}\n"
)

func plainly(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	_, _ = io.WriteString(w, gonePlain)
}

func byEvent(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, goneEvent)
}

// before runs one before a cluster until the test ends, and writes a kubeconfig of it.
func before(t *testing.T, c *kubetest.Cluster) (f *forgetful, kubeconfig string) {
	t.Helper()
	f = &forgetful{proxy: c.Proxy(t)}
	f.remember()
	return f, kubetest.StandBefore(t, f, func() { f.forget(plainly) })
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, gone := f.enter(r)
	if gone != nil {
		gone(w)
		return
	}
	f.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// enter notes a request. A watch that may run gets a context that forget ends.
func (f *forgetful) enter(r *http.Request) (context.Context, func(http.ResponseWriter)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	watch, lists := q.Get("watch") != "", q.Get("watch") == "" || q.Get("sendInitialEvents") != ""
	if lists { // a watch may begin with everything
		f.lists[r.URL.Path]++
	}
	switch {
	case !watch:
		return r.Context(), nil
	case f.gone != nil && !lists:
		f.refused[r.URL.Path]++
		return nil, f.gone
	}
	return f.ctx, nil
}

// forget has watches end, and be refused.
func (f *forgetful) forget(how func(http.ResponseWriter)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = how
	f.cut()
}

// remember lets watches run.
func (f *forgetful) remember() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone, f.refused, f.lists = nil, map[string]int{}, map[string]int{}
	f.ctx, f.cut = context.WithCancel(context.Background())
}

func (f *forgetful) counted(path string) (refused, lists int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused[path], f.lists[path]
}

// TestVersionsThatAreGone changes things while watches are broken, and has the watches that
// follow refused with 410 Gone, in both of its forms: everything is listed again, what went
// meanwhile goes, what stayed is never missed, and it does not count as an outage.
func TestVersionsThatAreGone(t *testing.T) {
	for name, how := range map[string]func(http.ResponseWriter){"answer": plainly, "event": byEvent} {
		t.Run(name, func(t *testing.T) { versionsGone(t, how) })
	}
}

func versionsGone(t *testing.T, how func(http.ResponseWriter)) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	f, kubeconfig := before(t, c)
	m := followWith(t, kubeconfig)
	m.ready(t)
	for i := range 3 {
		c.Apply(t, ns, fmt.Sprintf(churned, i, 80))
	}
	m.eventually(t, "all services", func() bool { return m.count(model.KindService, ns) == 3 })
	settled := m.revision()

	const services = "/api/v1/services"
	_, listed := f.counted(services)
	f.forget(how)
	m.eventually(t, "a refusal", func() bool { refused, _ := f.counted(services); return refused > 0 })
	c.Delete(t, ns, fmt.Sprintf(churned, 0, 80))
	c.Apply(t, ns, fmt.Sprintf(churned, 3, 80))
	m.eventually(t, "new lists", func() bool { _, lists := f.counted(services); return lists > listed })
	f.remember()
	m.eventually(t, "what went meanwhile", func() bool {
		return m.get(model.KindService, ns, "s0") == nil && m.get(model.KindService, ns, "s3") != nil
	})
	c.Apply(t, ns, fmt.Sprintf(churned, 1, 81)) // is heard by a watch
	m.eventually(t, "a change", func() bool { return m.get(model.KindService, ns, "s1").(*model.Service).Ports[0].Number == 81 })

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, change := range m.changes[min(int(settled), len(m.changes)):] {
		if k := change.Key; k.Namespace == ns && change.New == nil && k.Name != "s0" && !strings.HasPrefix(k.Name, "s0-") { // its slice goes with it
			require.Fail(t, "gone for a while", "%s", k)
		}
	}
	m.status.mu.Lock()
	defer m.status.mu.Unlock()
	require.Empty(t, m.status.failing)
}
