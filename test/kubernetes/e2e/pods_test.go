package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// podsYAML has one Pod of each kind that meshes have had trouble with. The Job calls the mesh from its init container,
// which has the network only because the sidecar starts before it.
const podsYAML = `
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  backoffLimit: 0
  template:
    metadata: {labels: {app: job}}
    spec:
      restartPolicy: Never
      initContainers: [{name: before, image: "localhost/app:1", args: [get, "http://echo:8080/"]}]
      containers: [{name: app, image: "localhost/app:1", args: [get, "http://echo:8080/"]}]
---
apiVersion: v1
kind: Service
metadata: {name: stateful}
spec: {clusterIP: None, selector: {app: stateful}, ports: [{name: http, port: 8080}, {name: tcp, port: 9001}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: stateful}
spec:
  serviceName: stateful
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: stateful}}
  template:
    metadata: {labels: {app: stateful}}
    spec: {containers: [{name: app, image: "localhost/app:1", args: [serve]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host, labels: {app: host}}
spec:
  hostNetwork: true
  containers: [{name: app, image: "localhost/app:1", args: [serve, "-http=:18080", "-grpc=", "-tcp="]}]
---
apiVersion: v1
kind: Pod
metadata: {name: probes, labels: {app: probes}}
spec:
  containers:
  - name: http
    image: localhost/app:1
    args: [serve]
    startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
    livenessProbe: {grpc: {port: 9000}, periodSeconds: 1, failureThreshold: 3}
    readinessProbe: {tcpSocket: {port: 9001}, periodSeconds: 1}
  - name: sick
    image: localhost/app:1
    args: [serve, "-http=:8081", "-grpc=", "-tcp="]
    readinessProbe: {httpGet: {path: /status/503, port: 8081}, periodSeconds: 1}
`

// TestPods checks Pods that end, that need the network early, that have stable names, that the mesh leaves alone, and
// that have probes, all under STRICT mTLS.
func TestPods(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	apply(t, ns, podsYAML)
	rollout(t, ns, "statefulset/stateful")
	l := startLoad(t, ns, "", map[string]string{
		"headless":  "http://stateful:8080/",
		"pod-0":     "http://stateful-0.stateful:8080/",
		"pod-1-tcp": "tcp://stateful-1.stateful:9001",
	})
	t.Run("Job", func(t *testing.T) {
		began := time.Now()
		kubectl(t, "-n", ns, "wait", "--for=condition=Complete", "job/job", "--timeout=1m")
		job := get[batchv1.Job](t, "-n", ns, "job", "job")
		t.Logf("the Job completed %s after its start; waited %s for it", job.Status.CompletionTime.Sub(job.Status.StartTime.Time), time.Since(began).Round(time.Second))
		requireNativeSidecar(t, get[corev1.PodList](t, "-n", ns, "pods", "-l", "app=job").Items[0])
	})
	t.Run("StatefulSet", func(t *testing.T) {
		for _, name := range []string{"stateful-0", "stateful-1"} {
			out := kubectl(t, "-n", ns, "exec", "load", "-c", "headless", "--", "/app", "get", "http://"+name+".stateful:8080/")
			if !strings.Contains(out, `"instance":"`+name+`"`) || !strings.Contains(out, "spiffe://") {
				t.Errorf("%s was not called by mTLS: %s", name, out)
			}
		}
		time.Sleep(2 * time.Second)
		l.requireNone("calls of a StatefulSet")
	})
	t.Run("hostNetwork", func(t *testing.T) {
		kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "pod/host", "--timeout=1m")
		p := get[corev1.Pod](t, "-n", ns, "pod", "host")
		if len(p.Spec.Containers) != 1 || len(p.Spec.InitContainers) != 0 {
			t.Errorf("the Pod on its node's network has a sidecar: %v", p.Spec)
		}
		out := kubectl(t, "-n", ns, "exec", "load", "-c", "headless", "--", "/app", "get", "http://"+p.Status.PodIP+":18080/")
		if !strings.Contains(out, `"protocol"`) {
			t.Errorf("a call of the Pod on its node's network: %s", out)
		}
	})
	t.Run("probes", func(t *testing.T) { testProbes(t, ns) })
}

// testProbes checks that probes of all kinds reach the application, and that a failed one is reported as the
// application's.
func testProbes(t *testing.T, ns string) {
	eventually(t, time.Minute, func() error {
		p := get[corev1.Pod](t, "-n", ns, "pod", "probes")
		for _, s := range p.Status.ContainerStatuses {
			switch {
			case s.RestartCount > 0:
				return fmt.Errorf("container %s was restarted", s.Name)
			case s.Name == "http" && !s.Ready:
				return fmt.Errorf("container %s is not ready", s.Name)
			case s.Name == "sick" && (s.Ready || s.State.Running == nil):
				return fmt.Errorf("container %s is %+v: expected it to run and not to be ready", s.Name, s)
			}
		}
		if len(p.Status.ContainerStatuses) < 2 {
			return fmt.Errorf("Pod %s has not started", p.Name)
		}
		return nil
	})
	for _, e := range get[corev1.EventList](t, "-n", ns, "events", "--field-selector=involvedObject.name=probes,reason=Unhealthy").Items {
		if strings.Contains(e.InvolvedObject.FieldPath, "{http}") && strings.Contains(e.Message, "Liveness") {
			t.Errorf("a probe of gRPC failed: %s", e.Message)
		}
	}
}
