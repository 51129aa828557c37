package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// kubectlOutput runs kubectl. The error has what it printed.
func kubectlOutput(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := testCluster.Kubectl(ctx, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	return outputOf(cmd, "kubectl", args)
}

// outputOf runs a command. The error has what it printed.
func outputOf(cmd *exec.Cmd, name string, args []string) (string, error) {
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err, failure.String(), out)
	}
	return string(out), nil
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectlOutput(t.Context(), nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies YAML, in which NAMESPACE stands for ns.
func apply(t *testing.T, ns, yaml string) {
	t.Helper()
	if _, err := kubectlOutput(t.Context(), []byte(strings.ReplaceAll(yaml, "NAMESPACE", ns)), "-n", ns, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// get decodes objects.
func get[T any](t *testing.T, args ...string) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(kubectl(t, append([]string{"get", "-o", "json"}, args...)...)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// namespace creates a namespace whose Pods get sidecars, with STRICT mTLS. It is deleted after the test.
func namespace(t *testing.T) string {
	t.Helper()
	return namespaceWith(t, "istio-injection: enabled")
}

// namespaceWith creates a namespace with labels, in YAML, and STRICT mTLS. It is deleted after the test.
func namespaceWith(t *testing.T, labels string) string {
	t.Helper()
	ns := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	apply(t, ns, `
apiVersion: v1
kind: Namespace
metadata: {name: `+ns+`, labels: {`+labels+`}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: `+ns+`}
spec: {mtls: {mode: STRICT}}
`)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() {
			pods, _ := kubectlOutput(ctx, nil, "-n", ns, "get", "pods", "-o", "wide")
			events, _ := kubectlOutput(ctx, nil, "-n", ns, "get", "events", "--sort-by=.lastTimestamp", "--field-selector=type=Warning")
			t.Logf("%s\n%s", pods, events)
		}
		if _, err := kubectlOutput(ctx, nil, "delete", "namespace", ns, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// rollout waits until a Deployment or StatefulSet is as its spec has it.
func rollout(t *testing.T, ns, name string) {
	t.Helper()
	kubectl(t, "-n", ns, "rollout", "status", name, "--timeout=2m")
}

// pods returns the Pods that do not end.
func pods(t *testing.T, ns, selector string) []corev1.Pod {
	t.Helper()
	var out []corev1.Pod
	for _, p := range get[corev1.PodList](t, "-n", ns, "pods", "-l", selector).Items {
		if p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

// eventually tries until try returns no error, for at most limit.
func eventually(t *testing.T, limit time.Duration, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", limit, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}
