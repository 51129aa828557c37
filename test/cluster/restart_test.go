package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/test/kubetest"
)

// Ports of a replica's sidecar and application, and of a client's sidecar.
const (
	replicaPort    = 18080
	replicaAppPort = 18081
	clientPort     = 15080
)

// restarted is a Deployment whose Pods do not become ready, or end, by themselves: kubelets
// see to that. Retries are off: each call that goes wrong is seen.
const restarted = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 15080, targetPort: 18080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {kubelet.moonsail.dev/ready: "false", kubelet.moonsail.dev/stop-after: 1h}
    spec:
      terminationGracePeriodSeconds: 3600
      containers: [{name: web, image: web}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web}
spec:
  workloadSelector: {labels: {app: web}}
  ingress:
  - port: {number: 18080, name: http, protocol: HTTP}
    captureMode: NONE
    defaultEndpoint: 0.0.0.0:18081
  egress: [{hosts: ["~/*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}], retries: {attempts: 0}}]}
`

const calling = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: %[1]s}
spec:
  workloadSelector: {labels: {app: %[1]s}}
  egress:
  - port: {number: 15080, name: http, protocol: HTTP}
    bind: %[2]s
    captureMode: NONE
    hosts: ["./*"]
`

// kubelets run what the Pods of a Deployment are made of, as kubelets do: an application and its
// sidecar; of one that is deleted the preStop hook, and when that has ended SIGTERM for all.
type kubelets struct {
	t       *testing.T
	c       *kubetest.Cluster
	ns, xds string
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	started map[types.UID]*pod
	hooks   []string // what preStop hooks said
}

type pod struct {
	name, ip string
	app      *http.Server
	stop     context.CancelFunc
	once     sync.Once
	up       chan struct{} // closed when the fields above are there
	ended    chan struct{}
}

// run follows the Pods until ctx ends.
func (p *kubelets) run(ctx context.Context) {
	w, err := p.c.Client.CoreV1().Pods(p.ns).Watch(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return // the test fails as no Pod becomes ready
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

// start runs a Pod; it is ready when its sidecar is.
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

// end does what a kubelet does with a Pod that is deleted.
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
	<-o.ended
	p.annotate(ctx, o.name, kubetest.AnnotationStopAfter, "0s")
}

func (p *kubelets) annotate(ctx context.Context, name, annotation, value string) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	_, _ = p.c.Client.CoreV1().Pods(p.ns).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}) // the Pod may be gone
}

// stopAll ends all that runs still.
func (p *kubelets) stopAll() {
	p.mu.Lock()
	for _, o := range p.started {
		select {
		case <-o.up:
			o.stop()
			_ = o.app.Close()
		default: // it never came up
		}
	}
	p.mu.Unlock()
	p.running.Wait()
}

// calls are a client's, one after the other.
type calls struct {
	url, host string

	mu     sync.Mutex // guards what follows
	total  int
	fresh  map[string]int // answers by Pod, since they were taken
	failed []string
}

func (l *calls) run(ctx context.Context) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		who, err := l.call(transport)
		l.mu.Lock()
		l.total++
		if err != nil {
			l.failed = append(l.failed, err.Error())
		} else {
			l.fresh[who]++
		}
		l.mu.Unlock()
	}
}

func (l *calls) call(transport *http.Transport) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Host = l.host
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// answered are the Pods that have answered since it was asked last.
func (l *calls) answered() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.fresh
	l.fresh = map[string]int{}
	return out
}

const listedPlane = `
apiVersion: v1
kind: Service
metadata: {name: istiod, namespace: istio-system}
spec: {ports: [{name: grpc-xds, port: 15010}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: istiod-%[1]s, namespace: istio-system, labels: {kubernetes.io/service-name: istiod}}
addressType: IPv4
ports: [{name: grpc-xds, port: %[1]s}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
`

// TestRollingRestartLosesNoCall: Pods of a Deployment are replaced on a real API server, of two
// control planes that find one another by their Service. Callers are connected to both.
func TestRollingRestartLosesNoCall(t *testing.T) {
	c := kubetest.Start(t, "--pod-cidr=127.81.0.0/16")
	ns := c.Namespace(t)
	var log safeBuffer
	first, second := replicated(t, c, &log), replicated(t, c, &log)
	for _, p := range []*control{first, second} {
		_, port, err := net.SplitHostPort(p.addr)
		require.NoError(t, err)
		c.Apply(t, "", fmt.Sprintf(listedPlane, port))
	}
	c.Eventually(t, "each control plane knows the other", func(context.Context) error {
		if n := strings.Count(log.String(), "another control plane answers"); n < 2 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	p := &kubelets{t: t, c: c, ns: ns, xds: first.addr, started: map[types.UID]*pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	p.running.Go(func() { p.run(ctx) })
	defer p.stopAll()
	defer cancel()
	c.Apply(t, ns, restarted)
	var all []*calls
	for i, plane := range []*control{first, second} {
		all = append(all, p.client(ctx, fmt.Sprintf("client-%d", i+1), fmt.Sprintf("127.82.0.%d", i+1), plane.addr))
	}
	before := p.deployed(all, nil)
	restart := `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`
	_, err := c.Client.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(restart), metav1.PatchOptions{})
	require.NoError(t, err)
	p.deployed(all, before)
	c.Eventually(t, "the ends of the old Pods", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.hooks) < 3 {
			return fmt.Errorf("%d have ended", len(p.hooks))
		}
		return nil
	})
	for _, said := range p.hooks {
		require.Regexp(t, "^0 left: [2-9] proxies ACKed", said, "both clients knew, of both control planes")
	}
	total := 0
	for _, l := range all {
		l.mu.Lock()
		require.Empty(t, l.failed, "of %d calls", l.total)
		total += l.total
		l.mu.Unlock()
	}
	t.Logf("%d calls, none failed: %v", total, p.hooks)
}

// replicated is a control plane that finds others by their Service.
func replicated(t *testing.T, c *kubetest.Cluster, log io.Writer) *control {
	return runControl(t, c, func(o *controlplane.Options) {
		o.Status, o.Absence, o.Log = false, time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
		o.Replicas = controlplane.Replicas{Service: controlplane.DefaultPeerService, Every: 100 * time.Millisecond}
	})
}

// client runs a client's sidecar, and calls through it once it is ready.
func (p *kubelets) client(ctx context.Context, name, ip, xds string) *calls {
	p.c.Apply(p.t, p.ns, fmt.Sprintf(calling, name, ip))
	p.running.Go(func() {
		_, _ = askUntil(ctx, append(sidecarArgs(name, p.ns, ip, name, xds), "--drain-time", "1ms", "--leave-timeout", "0")...)
	})
	l := &calls{url: fmt.Sprintf("http://%s:%d/", ip, clientPort), host: "web." + p.ns, fresh: map[string]int{}}
	p.c.Eventually(p.t, name+" reaches web", func(context.Context) error {
		transport := &http.Transport{DisableKeepAlives: true}
		_, err := l.call(transport)
		return err
	})
	p.running.Go(func() { l.run(ctx) })
	return l
}

// deployed waits until three Pods answer all clients, none of which is of those before.
func (p *kubelets) deployed(all []*calls, before map[string]int) map[string]int {
	p.t.Helper()
	now := map[string]int{}
	for _, l := range all {
		l.answered()
		p.c.Eventually(p.t, "calls are answered by three Pods", func(context.Context) error {
			now = l.answered()
			for name := range before {
				if now[name] > 0 {
					return errors.New(name + " answers")
				}
			}
			if len(now) != 3 {
				return fmt.Errorf("%v answer", now)
			}
			return nil
		})
	}
	return now
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
