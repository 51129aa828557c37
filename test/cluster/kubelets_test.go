package cluster

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// kubelets run the Pods of a Deployment as kubelets do: an application and its sidecar. When a Pod is deleted, its
// preStop hook runs, and then all containers get SIGTERM.
type kubelets struct {
	t       *testing.T
	c       *kubetest.Cluster
	ns, xds string
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	started map[types.UID]*pod
	hooks   []string // output of preStop hooks
}

type pod struct {
	name, ip string
	app      *http.Server
	stop     context.CancelFunc
	once     sync.Once
	up       chan struct{} // closed when the fields above are set
	ended    chan struct{}
}

// run follows the Pods until ctx ends.
func (p *kubelets) run(ctx context.Context) {
	w, err := p.c.Client.CoreV1().Pods(p.ns).Watch(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return // the test fails because no Pod becomes ready
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok {
				return
			}
			if o, is := e.Object.(*corev1.Pod); is && e.Type != watch.Deleted {
				p.see(ctx, o)
			}
		}
	}
}

func (p *kubelets) see(ctx context.Context, o *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.started[o.UID]
	switch {
	case have == nil && o.Status.PodIP != "" && o.DeletionTimestamp == nil:
		have = &pod{name: o.Name, ip: o.Status.PodIP, up: make(chan struct{}), ended: make(chan struct{})}
		p.started[o.UID] = have
		p.running.Go(func() { p.start(ctx, have) })
	case have != nil && o.DeletionTimestamp != nil:
		have.once.Do(func() { p.running.Go(func() { p.end(ctx, have) }) })
	}
}

// start runs a Pod, which is ready when its sidecar is.
func (p *kubelets) start(ctx context.Context, o *pod) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("%s:%d", o.ip, replicaAppPort))
	if err != nil {
		return
	}
	o.app = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, o.name) })}
	p.running.Go(func() { _ = o.app.Serve(ln) })
	var own context.Context
	own, o.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(func() {
		defer close(o.ended)
		_, _ = askUntil(own, sidecarArgs(o.name, p.ns, o.ip, "web", p.xds)...)
	})
	close(o.up)
	for !answers(ctx, "http://"+o.ip+":15021/healthz/ready") {
		if ctx.Err() != nil {
			return
		}
	}
	p.annotate(ctx, o.name, kubetest.AnnotationReady, "true")
}

func sidecarArgs(name, ns, ip, app, xds string) []string {
	return []string{"agent", "--name", name, "--namespace", ns, "--ip", ip, "--labels", "app=" + app, "--xds-address", xds,
		"--interception-mode", "NONE", "--xds-plaintext", "--concurrency", "1"}
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		<-time.After(20 * time.Millisecond)
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// end ends a deleted Pod as a kubelet does.
func (p *kubelets) end(ctx context.Context, o *pod) {
	select {
	case <-o.up:
	case <-ctx.Done():
		return
	}
	status, said := askUntil(ctx, "agent", "drain", "--address", o.ip+":15020")
	p.mu.Lock()
	p.hooks = append(p.hooks, fmt.Sprintf("%d %s", status, strings.TrimSpace(said)))
	p.mu.Unlock()
	o.stop()
	_ = o.app.Close() // the application ends at once
	await.From(p.t, o.ended)
	p.annotate(ctx, o.name, kubetest.AnnotationStopAfter, "0s")
}

func (p *kubelets) annotate(ctx context.Context, name, annotation, value string) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	_, _ = p.c.Client.CoreV1().Pods(p.ns).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}) // the Pod may be gone
}

// stopAll ends all Pods that still run.
func (p *kubelets) stopAll() {
	p.mu.Lock()
	for _, o := range p.started {
		select {
		case <-o.up:
			o.stop()
			_ = o.app.Close()
		default: // it never became ready
		}
	}
	p.mu.Unlock()
	p.running.Wait()
}
