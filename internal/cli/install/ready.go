package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/terminal"
)

// readiness is how far a control plane is.
type readiness struct {
	ready    bool
	text     string   // for progress
	problems []string // what keeps it from being ready, in words
}

// awaitReady waits until the Deployment of a control plane is ready and the API server can call its webhooks. Problems are
// written as they are found, each once. canRollBack: the error names the rollback, too.
func awaitReady(ctx context.Context, c objects, list []*unstructured.Unstructured, w io.Writer, progress *terminal.Progress, canRollBack bool) error {
	var last readiness
	shown := map[string]bool{}
	err := until(ctx, func() (bool, error) {
		r, err := readReadiness(ctx, c, list)
		if err != nil {
			return false, err
		}
		last = r
		progress.Update("waiting: " + r.text)
		for _, p := range r.problems {
			if !shown[p] {
				shown[p] = true
				fmt.Fprintln(w, "  "+p)
			}
		}
		return r.ready, nil
	})
	if err == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	why := last.text
	switch {
	case len(last.problems) > 0:
		why = strings.Join(last.problems, "; ")
	case why == "":
		why = err.Error() // nothing could be read
	}
	next := "fix this and run the command again"
	if canRollBack {
		next += ", or run 'moonsail upgrade --rollback'"
	}
	return &terminal.UserError{What: "the control plane is not ready in time: " + why, Next: next}
}

// readReadiness reads the state of a control plane once.
func readReadiness(ctx context.Context, c objects, list []*unstructured.Unstructured) (readiness, error) {
	for _, o := range list {
		switch o.GetKind() {
		case deployments.name:
			live, err := c.Get(ctx, deployments.GroupVersionResource, o.GetNamespace(), o.GetName())
			if err != nil {
				return readiness{}, err
			}
			if text := notRolledOut(live); text != "" {
				r := readiness{text: text}
				r.problems, err = problemsOf(ctx, c, live)
				return r, err
			}
		case mutating.name, validating.name:
			k, _ := kindOf(o)
			live, err := c.Get(ctx, k.GroupVersionResource, "", o.GetName())
			if err != nil {
				return readiness{}, err
			}
			if !trusted(live) {
				return readiness{text: titleOf(o) + " has no certificate of the control plane yet"}, nil
			}
		}
	}
	if text := unreachable(ctx, c, list); text != "" {
		return readiness{text: text}, nil
	}
	return readiness{ready: true, text: "ready"}, nil
}

// unreachable describes why the API server cannot call the webhook that injects sidecars; empty: it can. A Service leads to
// new Pods only when the nodes' proxies know them, and until then Pods cannot be created in namespaces of the mesh.
func unreachable(ctx context.Context, c objects, list []*unstructured.Unstructured) string {
	namespace, revision := "", ""
	for _, o := range list {
		switch o.GetKind() {
		case deployments.name:
			namespace = o.GetNamespace()
		case mutating.name:
			revision = o.GetLabels()[labelRevision]
		}
	}
	if namespace == "" || revision == "" {
		return ""
	}
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "moonsail-install", "namespace": namespace, "labels": map[string]any{"istio.io/rev": revision}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "probe", "image": "probe"}}},
	}}
	// The Pod is not stored. Another error means that the webhook was called, or does not concern this namespace.
	if _, err := c.Apply(ctx, pods.GroupVersionResource, probe, true); apierrors.IsInternalError(err) && strings.Contains(err.Error(), injectionWebhook) {
		return "the API server cannot call the webhook: " + err.Error()
	}
	return ""
}

// injectionWebhook is in the names of all webhooks that inject sidecars.
const injectionWebhook = "sidecar-injector.moonsail.dev"

// notRolledOut describes what is missing in the rollout of a Deployment; empty: nothing.
func notRolledOut(d *unstructured.Unstructured) string {
	number := func(fields ...string) int64 { n, _, _ := unstructured.NestedInt64(d.Object, fields...); return n }
	wanted, updated, available := number("spec", "replicas"), number("status", "updatedReplicas"), number("status", "availableReplicas")
	all := number("status", "replicas")
	switch {
	case number("status", "observedGeneration") < d.GetGeneration():
		return titleOf(d) + " waits for its controller"
	case updated < wanted:
		return fmt.Sprintf("%s: %d of %d Pods are new", titleOf(d), updated, wanted)
	case available < wanted:
		return fmt.Sprintf("%s: %d of %d Pods are ready", titleOf(d), available, wanted)
	case all > updated:
		return fmt.Sprintf("%s: %s to end", titleOf(d), terminal.Count(int(all-updated), "old Pod"))
	}
	return ""
}

// trusted reports whether each webhook has a CA.
func trusted(o *unstructured.Unstructured) bool {
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	return !slices.ContainsFunc(hooks, func(h any) bool {
		m, _ := h.(map[string]any)
		ca, _, _ := unstructured.NestedString(m, "clientConfig", "caBundle")
		return ca == ""
	})
}

// problemsOf describes what keeps Pods of a Deployment from being created, scheduled or ready.
func problemsOf(ctx context.Context, c objects, d *unstructured.Unstructured) ([]string, error) {
	var out []string
	if text := condition(d, "ReplicaFailure", "True"); text != "" {
		out = append(out, "Pods cannot be created: "+withAdvice(text))
	}
	labels, _, _ := unstructured.NestedStringMap(d.Object, "spec", "selector", "matchLabels")
	var selector []string
	for k, v := range labels {
		selector = append(selector, k+"="+v)
	}
	list, err := c.List(ctx, pods.GroupVersionResource, d.GetNamespace(), strings.Join(selector, ","))
	if err != nil {
		return nil, err
	}
	pending := map[string]int{} // by message
	for i := range list {
		p := &list[i]
		if p.GetDeletionTimestamp() != nil || condition(p, "Ready", "True") != "" {
			continue
		}
		if text := condition(p, "PodScheduled", "False"); text != "" {
			pending[text]++
		}
		out = append(out, containerProblems(p)...)
	}
	for text, n := range pending {
		out = append(out, fmt.Sprintf("%s pending: %s", terminal.Count(n, "Pod"), text))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// withAdvice adds what to do to messages about Pods that an API server refuses.
func withAdvice(text string) string {
	switch {
	case strings.Contains(text, "exceeded quota"):
		return text + ": raise the ResourceQuota, or lower resources.requests (--set) or --replicas"
	case strings.Contains(text, "violates PodSecurity"):
		return text + ": lower the label pod-security.kubernetes.io/enforce of the namespace, or correct securityContext"
	case strings.Contains(text, "failed calling webhook"):
		return text + ": a webhook of another component does not answer"
	}
	return text
}

// containerProblems describes the containers of a Pod that do not run.
func containerProblems(p *unstructured.Unstructured) []string {
	var out []string
	list, _, _ := unstructured.NestedSlice(p.Object, "status", "containerStatuses")
	for _, item := range list {
		s, _ := item.(map[string]any)
		image, _ := s["image"].(string)
		reason, _, _ := unstructured.NestedString(s, "state", "waiting", "reason")
		message, _, _ := unstructured.NestedString(s, "state", "waiting", "message")
		switch reason {
		case "", "ContainerCreating", "PodInitializing":
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
			out = append(out, fmt.Sprintf("image %s cannot be pulled (%s): check its name, and global.imagePullSecrets for a private registry; or load it on each node", image, reason))
		case "CrashLoopBackOff":
			code, _, _ := unstructured.NestedInt64(s, "lastState", "terminated", "exitCode")
			why, _, _ := unstructured.NestedString(s, "lastState", "terminated", "reason")
			out = append(out, fmt.Sprintf("Pod %s ends with status %d (%s): see 'kubectl -n %s logs %s --previous'", p.GetName(), code, why, p.GetNamespace(), p.GetName()))
		default:
			out = append(out, fmt.Sprintf("Pod %s: %s: %s", p.GetName(), reason, message))
		}
	}
	return out
}
