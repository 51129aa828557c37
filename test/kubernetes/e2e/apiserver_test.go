package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestAPIServerAway stops the API server under traffic for a minute, or for five in full. No call may fail meanwhile, the
// control plane stays ready, and afterwards endpoints change again. When the API server returns, Kubernetes may take all nodes
// for lost, because they could not renew their leases for 50 s. It then marks all Pods as not ready, for seconds. The calls
// that fail by this are printed.
func TestAPIServerAway(t *testing.T) {
	away := time.Minute
	if full() {
		away = 5 * time.Minute
	}
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	l := startLoad(t, ns, "", clients)
	var addresses []string
	for _, p := range pods(t, "istio-system", "app.kubernetes.io/name=moonsail") {
		addresses = append(addresses, p.Status.PodIP+":15014")
	}
	if err := testCluster.Signal("node1", "kube-apiserver", unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() error { return testCluster.Signal("node1", "kube-apiserver", unix.SIGCONT) }
	t.Cleanup(func() { _ = resume() }) // if the test failed before it did
	for deadline := time.Now().Add(away); time.Now().Before(deadline); time.Sleep(time.Second) {
		for _, address := range addresses {
			if err := ready(t.Context(), address); err != nil {
				t.Errorf("%.0f s before the API server's return: %v", time.Until(deadline).Seconds(), err)
			}
		}
	}
	l.requireNone(fmt.Sprintf("%s without the API server", away))
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, time.Minute, func() error {
		_, err := kubectlOutput(t.Context(), nil, "get", "--raw", "/readyz")
		return err
	})
	kubectl(t, "-n", ns, "rollout", "restart", "deployment/echo")
	rollout(t, ns, "deployment/echo")
	awaitEnded(t, ns, "app=echo")
	t.Logf("a rolling restart was complete %.0f s after the API server's return", time.Since(began).Seconds())
	const what = "return of the API server and a rolling restart"
	lost := get[corev1.EventList](t, "-n", ns, "events", "--field-selector=reason=NodeNotReady").Items
	if len(lost) == 0 {
		l.requireNone(what)
	} else {
		t.Logf("Kubernetes marked %d Pods as not ready, because their nodes could not renew their leases", len(lost))
		l.report(what)
	}
	requireInstances(t, ns, l)
}

// ready asks a control plane from the network of a node whether it is ready.
func ready(ctx context.Context, address string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return testCluster.Dial(ctx, "node1", address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/ready", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("control plane %s: %s", address, response.Status)
	}
	return nil
}

// requireInstances checks that the calls of the last seconds went to the present Pods of echo, and to all of them.
func requireInstances(t *testing.T, ns string, l *load) {
	t.Helper()
	l.reset()
	time.Sleep(3 * time.Second)
	l.requireNone("after the API server's return")
	called := l.take("stats")["http"].Instances
	for _, p := range pods(t, ns, "app=echo") {
		if called[p.Name] == 0 {
			t.Errorf("Pod %s was not called: %v", p.Name, called)
		}
		delete(called, p.Name)
	}
	if len(called) > 0 {
		t.Errorf("Pods were called that have ended: %v", called)
	}
}
