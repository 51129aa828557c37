package install

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/deploy"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	list, err := deploy.Decode([]byte(text))
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// TestDifferences checks that differences name the field and both values, and leave out what the API server writes.
func TestDifferences(t *testing.T) {
	before := object(t, "kind: Deployment\nmetadata: {name: a, generation: 1, labels: {x: y}}\nspec: {replicas: 2, list: [1, 2], image: a}\nstatus: {replicas: 2}\n")
	after := object(t, "kind: Deployment\nmetadata: {name: a, generation: 2, labels: {x: y}}\nspec: {replicas: 3, list: [1, 3], new: b}\n")
	require.Equal(t, []string{"spec.image: a -> (none)", "spec.list[1]: 2 -> 3", "spec.new: (none) -> b", "spec.replicas: 2 -> 3"}, differences(before.Object, after.Object))
	require.Empty(t, differences(before.Object, before.Object))
}

// TestDifferencesOfTexts checks that a line that differs is shown, however many precede and follow it.
func TestDifferencesOfTexts(t *testing.T) {
	same := strings.Repeat("same: line\n", longest)
	text := func(lines string) map[string]any { return map[string]any{"config": same + lines + same} }
	require.Equal(t, []string{`config: cni:\n  enabled: true -> (none)`}, differences(text("cni:\n  enabled: true\n"), text("")))
	require.Equal(t, []string{`config: image: a:1 -> image: a:2`}, differences(text("image: a:1\n"), text("image: a:2\n")))
}

// TestContainerProblems checks what users read of Pods that do not start.
func TestContainerProblems(t *testing.T) {
	pod := object(t, `
kind: Pod
metadata: {name: moonsail-1, namespace: istio-system}
status:
  containerStatuses:
  - {image: example.com/a:1, state: {waiting: {reason: ImagePullBackOff}}}
  - {image: b, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2, reason: Error}}}
  - {image: c, state: {waiting: {reason: ContainerCreating}}}
  - {image: d, state: {running: {}}}
`)
	list := containerProblems(pod)
	require.Len(t, list, 2)
	require.Contains(t, list[0], "image example.com/a:1 cannot be pulled (ImagePullBackOff): check its name")
	require.Contains(t, list[1], "kubectl -n istio-system logs moonsail-1 --previous")
	require.Contains(t, withAdvice(`pods "m" is forbidden: exceeded quota: q`), "raise the ResourceQuota")
	require.Contains(t, withAdvice(`pods "m" is forbidden: violates PodSecurity "restricted:latest"`), "pod-security.kubernetes.io/enforce")
}

func TestRollout(t *testing.T) {
	deployment := func(status string) string {
		return notRolledOut(object(t, "kind: Deployment\nmetadata: {name: m, namespace: n, generation: 2}\nspec: {replicas: 2}\nstatus: "+status+"\n"))
	}
	require.Contains(t, deployment("{observedGeneration: 1}"), "waits for its controller")
	require.Contains(t, deployment("{observedGeneration: 2, replicas: 2, updatedReplicas: 1}"), "1 of 2 Pods are new")
	require.Contains(t, deployment("{observedGeneration: 2, replicas: 2, updatedReplicas: 2, availableReplicas: 1}"), "1 of 2 Pods are ready")
	require.Contains(t, deployment("{observedGeneration: 2, replicas: 3, updatedReplicas: 2, availableReplicas: 2}"), "1 old Pod")
	require.Empty(t, deployment("{observedGeneration: 2, replicas: 2, updatedReplicas: 2, availableReplicas: 2}"))
}

// creating is a cluster whose API server answers the creation of a Pod with an error.
type creating struct {
	objects
	err     error
	applied []*unstructured.Unstructured
}

func (c *creating) Apply(_ context.Context, _ schema.GroupVersionResource, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	if !dryRun {
		return nil, errors.New("a Pod was created")
	}
	c.applied = append(c.applied, o)
	return o, c.err
}

// TestUnreachable checks that a control plane is ready only when the API server can call its webhook.
func TestUnreachable(t *testing.T) {
	list := []*unstructured.Unstructured{
		object(t, "kind: Deployment\nmetadata: {name: m, namespace: system}\n"),
		object(t, "kind: MutatingWebhookConfiguration\nmetadata: {name: m, labels: {install.moonsail.dev/revision: r}}\n"),
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"called":          {nil, ""},
		"refused":         {apierrors.NewInternalError(errors.New(`failed calling webhook "rev.object.sidecar-injector.moonsail.dev": connection refused`)), "connection refused"},
		"another webhook": {apierrors.NewInternalError(errors.New(`failed calling webhook "other.example.com": connection refused`)), ""},
		"another error":   {apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "m", errors.New("violates PodSecurity")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &creating{err: tc.err}
			got := unreachable(t.Context(), c, list)
			if tc.want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, tc.want)
			}
			require.Len(t, c.applied, 1)
			require.Equal(t, "system", c.applied[0].GetNamespace())
			require.Equal(t, map[string]string{"istio.io/rev": "r"}, c.applied[0].GetLabels())
		})
	}
	require.Empty(t, unreachable(t.Context(), &creating{}, list[:1]), "no webhooks are installed")
}

// TestRecord checks that a record reads as it was written.
func TestRecord(t *testing.T) {
	base, controlPlane := deploy.Release{Chart: deploy.BaseChart, Namespace: "istio-system"}, deploy.Release{Chart: deploy.ControlPlaneChart, Namespace: "istio-system", Values: map[string]any{"image": "a:1"}}
	s, err := newState(base, controlPlane, "canary")
	require.NoError(t, err)
	text, err := (&record{Current: s}).encode()
	require.NoError(t, err)
	require.Less(t, len(text), 100_000, "a Secret holds 1 MiB")
	var read record
	require.NoError(t, read.decode(text))
	require.Equal(t, s.Values, read.Current.Values)
	require.Equal(t, len(s.Objects), len(read.Current.Objects))
	for _, o := range read.Current.Objects {
		require.Equal(t, "canary", o.GetLabels()[labelRevision])
		_, err := kindOf(o)
		require.NoError(t, err, "a chart has a kind that uninstall does not list")
	}
}

// TestKinds checks that the commands know each kind that a chart can render.
func TestKinds(t *testing.T) {
	all := map[string]any{
		"autoscaleEnabled": true, "revisionTags": []any{"prod"}, "meshConfig": map[string]any{"accessLogFile": "/dev/stdout"},
		"global":     map[string]any{"networkPolicy": map[string]any{"enabled": true}},
		"monitoring": map[string]any{"serviceMonitor": map[string]any{"enabled": true}, "prometheusRule": map[string]any{"enabled": true}},
	}
	for chart, values := range map[string]map[string]any{deploy.BaseChart: nil, deploy.ControlPlaneChart: all} {
		list, err := deploy.Release{Chart: chart, Namespace: "istio-system", Values: values}.Objects()
		require.NoError(t, err)
		for _, o := range list {
			k, err := kindOf(o)
			require.NoError(t, err)
			require.Equal(t, k.namespaced, o.GetNamespace() != "", titleOf(o))
		}
	}
}

func TestSelectedBy(t *testing.T) {
	hooks := object(t, `
kind: MutatingWebhookConfiguration
metadata: {name: other}
webhooks:
- clientConfig: {service: {name: istiod, namespace: istio-system, port: 443}}
  namespaceSelector: {matchExpressions: [{key: istio-injection, operator: In, values: [enabled]}]}
- clientConfig: {service: {name: istiod, namespace: istio-system}}
  namespaceSelector: {matchExpressions: [{key: istio.io/rev, operator: In, values: [canary]}]}
`)
	require.Equal(t, "istio-injection=enabled", selectedBy(hooks, "default"))
	require.Equal(t, "istio.io/rev=canary", selectedBy(hooks, "canary"))
	require.Empty(t, selectedBy(hooks, "blue"))
	require.Equal(t, "istio-system/istiod", serviceOf(hooks))
}

// TestTagObjects checks Istio's labels and selectors of tags.
func TestTagObjects(t *testing.T) {
	o := operation{}
	o.Revision, o.Namespace = "1-0", "istio-system"
	list, err := o.tagObjects("prod", false)
	require.NoError(t, err)
	require.Len(t, list, 3)
	hooks := list[2]
	require.Equal(t, "istio-revision-tag-prod", hooks.GetName())
	require.Equal(t, "prod", hooks.GetLabels()["istio.io/tag"])
	require.Equal(t, "1-0", hooks.GetLabels()["istio.io/rev"])
	require.Equal(t, "istio-system/moonsail-1-0", serviceOf(hooks))
	require.Equal(t, "istio.io/rev=prod", selectedBy(hooks, "prod"))
	list, err = o.tagObjects("default", false)
	require.NoError(t, err)
	require.Equal(t, "istio-injection=enabled", selectedBy(list[2], "default"))
}
