package kube

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/kubetest"
)

// forgetful is a proxy of a real API server. After forget it ends every watch, and answers new ones like an API server
// that no longer has the version they ask for.
type forgetful struct {
	proxy *httputil.ReverseProxy

	mu      sync.Mutex // guards all below
	gone    goner
	refused map[string]int // watches by path
	lists   map[string]int
	tooOld  int                // watches that the API server itself has refused
	cut     context.CancelFunc // ends the watches that run
	ctx     context.Context
}

// goner answers a watch whose version is gone.
type goner func(f *forgetful, w http.ResponseWriter, r *http.Request)

// gonePlain is the answer to a watch whose version is too old. goneEvent ends a watch that has begun.
const (
	gonePlain = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version: 1 (2)"}`
	goneEvent = `{"type":"ERROR","object":` + gonePlain + "}\n"
)

func plainly(_ *forgetful, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	_, _ = io.WriteString(w, gonePlain)
}

func byEvent(_ *forgetful, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, goneEvent)
}

// really asks the API server for the first version that ever existed. A restarted API server refuses it, because it no
// longer has it.
func really(f *forgetful, w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Set("resourceVersion", "1")
	r.URL.RawQuery = q.Encode()
	answer := httptest.NewRecorder() // it ends with the refusal
	f.proxy.ServeHTTP(answer, r)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(answer.Body.String(), "too old resource version") {
		f.tooOld++
	}
}

// before runs a forgetful proxy of a cluster until the test ends, and writes a kubeconfig for it.
func before(t *testing.T, c *kubetest.Cluster) (f *forgetful, kubeconfig string) {
	t.Helper()
	f = &forgetful{proxy: c.Proxy(t)}
	f.remember()
	return f, kubetest.StandBefore(t, f, func() { f.forget(plainly) })
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, gone := f.enter(r)
	if gone != nil {
		gone(f, w, r)
		return
	}
	f.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// enter records a request. A watch that may run gets a context that forget ends.
func (f *forgetful) enter(r *http.Request) (context.Context, goner) {
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

// forget ends watches, and refuses new ones.
func (f *forgetful) forget(how goner) {
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

// TestVersionsThatAreGone changes objects while watches are broken, and refuses the next watches with 410 Gone, in both of
// its forms. Everything is listed again: objects that were deleted meanwhile go, all others stay without a gap, and it does
// not count as an outage.
func TestVersionsThatAreGone(t *testing.T) {
	for name, how := range map[string]goner{"answer": plainly, "event": byEvent} {
		t.Run(name, func(t *testing.T) {
			require.Zero(t, versionsGone(t, kubetest.Shared(t), how))
		})
	}
}

// versionsGone returns how many watches the API server itself has refused.
func versionsGone(t *testing.T, c *kubetest.Cluster, how goner) int {
	t.Helper()
	ns := c.Namespace(t)
	f, kubeconfig := before(t, c)
	m := followWith(t, kubeconfig)
	m.ready(t)
	m.eventually(t, "none that fails, of a server that may have started just now", func() bool { return m.failingKinds() == 0 })
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
	c.Apply(t, ns, fmt.Sprintf(churned, 1, 81)) // a watch receives it
	m.eventually(t, "a change", func() bool { return m.get(model.KindService, ns, "s1").(*model.Service).Ports[0].Number == 81 })

	m.eventually(t, "none that fails, of a server that may be slow", func() bool { return m.failingKinds() == 0 })

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, change := range m.changes[min(int(settled), len(m.changes)):] {
		if k := change.Key; k.Namespace == ns && change.New == nil && k.Name != "s0" && !strings.HasPrefix(k.Name, "s0-") { // its slice goes with it
			require.Fail(t, "gone for a while", "%s", k)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tooOld
}
