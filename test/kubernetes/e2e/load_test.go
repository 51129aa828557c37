package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// echoYAML is a Deployment of three with Services: echo, whose callers retry as Istio does by default, and once, whose
// callers do not retry.
const echoYAML = `
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{name: http, port: 8080}, {name: grpc, port: 9000}, {name: tcp, port: 9001}]}
---
apiVersion: v1
kind: Service
metadata: {name: once}
spec: {selector: {app: echo}, ports: [{name: http, port: 8080}, {name: grpc, port: 9000}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: once}
spec:
  hosts: [once]
  http:
  - match: [{port: 8080}]
    route: [{destination: {host: once, port: {number: 8080}}}]
    retries: {attempts: 0}
  - match: [{port: 9000}]
    route: [{destination: {host: once, port: {number: 9000}}}]
    retries: {attempts: 0}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo}
spec:
  replicas: 3
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: app
        image: localhost/app:1
        args: [serve]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

// clients are the clients of a load, by name: flags and URL of each.
var clients = map[string]string{
	"http":      "http://echo:8080/",
	"http-once": "http://once:8080/",
	"grpc-once": "grpc://once:9000",
	"tcp":       "tcp://echo:9001",
}

// clientRate is the rate of each client, in calls a second.
const clientRate = 20

// callTimeout is how long a client waits for an answer, the application's default.
const callTimeout = 10 * time.Second

// load is a Pod with clients, a container each, that call at a constant rate.
type load struct {
	t     *testing.T
	ns    string
	ip    string // of the Pod
	names []string
	began time.Time
}

// stats are the results of one client, as the application reports them.
type stats struct {
	Calls   int           `json:"calls"`
	Failed  int           `json:"failed"`
	Slowest time.Duration `json:"slowest"`
	Oldest  time.Time     `json:"oldest"` // when the oldest call in flight began; zero: there is none
	// Instances are successful calls by Pod.
	Instances map[string]int `json:"instances"`
	Failures  []struct {
		Began time.Time `json:"began"`
		Error string    `json:"error"`
	} `json:"failures"`
}

// startLoad starts the clients on a node, or on any. It returns when each has made calls.
func startLoad(t *testing.T, ns, node string, clients map[string]string) *load {
	t.Helper()
	if node != "" {
		node = "nodeName: " + node
	}
	return startLoadPod(t, ns, node, clients)
}

// startOutsideLoad starts the clients on the network of node1, without a sidecar.
func startOutsideLoad(t *testing.T, ns string, clients map[string]string) *load {
	t.Helper()
	return startLoadPod(t, ns, "nodeName: node1\n  hostNetwork: true", clients)
}

// startLoadPod starts the clients in a Pod with further fields of its spec, in YAML.
func startLoadPod(t *testing.T, ns, spec string, clients map[string]string) *load {
	t.Helper()
	l := &load{t: t, ns: ns, names: slices.Sorted(maps.Keys(clients))}
	var containers strings.Builder
	for i, name := range l.names {
		fmt.Fprintf(&containers, "\n  - {name: %s, image: \"localhost/app:1\", args: [load, -rate=%d, \"-report=:%d\", %s], "+
			"securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}",
			name, clientRate, 8090+i, strings.Join(strings.Fields(clients[name]), ", "))
	}
	apply(t, ns, `
apiVersion: v1
kind: Pod
metadata:
  name: load
  labels: {app: load}
  annotations: {traffic.sidecar.istio.io/excludeInboundPorts: "8090,8091,8092,8093"} # of reports
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  `+spec+`
  containers:`+containers.String())
	kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "pod/load", "--timeout=2m")
	l.ip = get[corev1.Pod](t, "-n", ns, "pod", "load").Status.PodIP
	// Calls before the client's proxy has the endpoints may fail. The load starts when none has failed for a second.
	eventually(t, time.Minute, func() error {
		l.reset()
		time.Sleep(time.Second)
		for name, s := range l.take("stats") {
			if s.Calls == 0 || s.Failed > 0 {
				return fmt.Errorf("client %s: %+v", name, s)
			}
		}
		return nil
	})
	l.reset()
	return l
}

// take asks each client for its results, past the sidecar.
func (l *load) take(path string) map[string]stats {
	l.t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return testCluster.Dial(ctx, "node1", address)
		},
	}}
	out := map[string]stats{}
	for i, name := range l.names {
		request, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/%s", l.ip, 8090+i, path), nil)
		if err != nil {
			l.t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			l.t.Fatal(err)
		}
		var s stats
		err = json.NewDecoder(response.Body).Decode(&s)
		if closeErr := response.Body.Close(); err != nil || closeErr != nil {
			l.t.Fatal(err, closeErr)
		}
		out[name] = s
	}
	return out
}

func (l *load) reset() {
	l.t.Helper()
	l.take("reset")
	l.began = time.Now()
}

// report prints how many calls have failed since the last reset, by error.
func (l *load) report(what string) {
	l.t.Helper()
	took := time.Since(l.began)
	for name, s := range l.take("stats") {
		kinds := map[string]int{}
		for _, f := range s.Failures {
			kinds[strings.Join(strings.Fields(f.Error), " ")]++
		}
		l.t.Logf("%s: client %s: %d requests in %.0f s, %d failed, slowest %s; the first %d: %v", what, name, s.Calls, took.Seconds(), s.Failed, s.Slowest.Round(time.Millisecond), len(s.Failures), kinds)
	}
}

// awaitAnswers waits until all calls that have begun are over: one without an answer fails only after callTimeout.
func (l *load) awaitAnswers() {
	l.t.Helper()
	now := time.Now()
	eventually(l.t, 2*callTimeout, func() error {
		for name, s := range l.take("stats") {
			if !s.Oldest.IsZero() && s.Oldest.Before(now) {
				return fmt.Errorf("client %s waits for an answer since %s", name, s.Oldest.Format("15:04:05.000"))
			}
		}
		return nil
	})
}

// requireNone fails the test if a call has failed since the last reset, or if clients made fewer calls than they should.
// what names what happened meanwhile.
func (l *load) requireNone(what string) {
	l.t.Helper()
	took := time.Since(l.began)
	l.awaitAnswers()
	for name, s := range l.take("stats") {
		l.t.Logf("%s: client %s: %d requests in %.0f s, %d failed, slowest %s", what, name, s.Calls, took.Seconds(), s.Failed, s.Slowest.Round(time.Millisecond))
		for _, f := range s.Failures {
			l.t.Errorf("%s: client %s: %s: %s", what, name, f.Began.Format("15:04:05.000"), f.Error)
		}
		if least := int(took.Seconds()*clientRate) / 2; s.Calls < least {
			l.t.Errorf("%s: client %s made %d calls: expected at least %d", what, name, s.Calls, least)
		}
	}
}
