package cluster

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/logtext"
)

// Ports of a replica's sidecar and application, and of a client's sidecar.
const (
	replicaPort    = 18080
	replicaAppPort = 18081
	clientPort     = 15080
)

// restarted is a Deployment whose Pods become ready and end only through kubelets. Retries are off, so that each failed
// call shows.
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

// calls are the calls of a client, one after the other.
type calls struct {
	url, host string

	mu     sync.Mutex // guards the fields below
	total  int
	fresh  map[string]int // answers by Pod since they were last taken
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

// answered returns the Pods that have answered since its last call.
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

// TestRollingRestartLosesNoCall replaces the Pods of a Deployment on a real API server, with two control planes that
// find each other by their Service. Callers are connected to both. No call may fail.
func TestRollingRestartLosesNoCall(t *testing.T) {
	c := kubetest.Start(t, "--pod-cidr=127.81.0.0/16")
	ns := c.Namespace(t)
	var log logtext.Buffer
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
		require.Regexp(t, "^0 deregistered: [2-9] proxies ACKed", said, "both clients knew, of both control planes")
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

// replicated starts a control plane that finds others by their Service.
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

// deployed waits until three Pods that were not there before answer all clients.
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
