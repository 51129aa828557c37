package install

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/cli/client"
)

// istioTag returns the webhooks of a tag of Istio.
func istioTag(name, tag string) string {
	return `
kind: MutatingWebhookConfiguration
apiVersion: admissionregistration.k8s.io/v1
metadata: {name: ` + name + `, labels: {istio.io/rev: old, istio.io/tag: ` + tag + `}}
webhooks:
- name: rev.namespace.sidecar-injector.istio.io
  clientConfig: {service: {name: istiod-old, namespace: istio-system}}
  namespaceSelector: {matchExpressions: [{key: istio.io/rev, operator: In, values: [` + tag + `]}]}
`
}

func (s *session) setTag(tag string, overwrite bool) error {
	s.t.Helper()
	o := s.operation(nil)
	return o.run(func(ctx context.Context) error { return o.setTag(ctx, tag, overwrite) })
}

func (s *session) removeTag(tag string) error {
	s.t.Helper()
	o := s.operation(nil)
	return o.run(func(ctx context.Context) error { return o.removeTag(ctx, tag) })
}

// tagSession has a control plane of the default revision.
func tagSession(t *testing.T) *session {
	t.Helper()
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	s.cluster.writes = nil
	return s
}

// TestTagList checks the formats of the list.
func TestTagList(t *testing.T) {
	s := tagSession(t)
	require.NoError(t, s.setTag("test", false))
	s.cluster.add(istioTag("istio-revision-tag-prod", "prod"), "kind: Namespace\napiVersion: v1\nmetadata: {name: shop, labels: {istio.io/rev: prod}}\n")
	const table = "TAG   REVISION  SERVICE                  NAMESPACES"
	for format, want := range map[string]string{
		"table": table + "\nprod  old       istio-system/istiod-old  shop\ntest  default   istio-system/moonsail    -\n",
		"wide":  table + "  WEBHOOKS\nprod  old       istio-system/istiod-old  shop        istio-revision-tag-prod\n",
		"name":  "prod\ntest\n",
		"json":  `"tag": "prod"`,
		"yaml":  "revision: old\n",
		`jsonpath={.tags[?(@.tag=="test")].revision}`: "default\n",
	} {
		t.Run(format, func(t *testing.T) {
			var out client.ListOutput
			o := s.operation(nil)
			out.AddFlag(&cobra.Command{})
			require.NoError(t, out.Set(format))
			require.NoError(t, o.run(func(ctx context.Context) error { return o.listTags(ctx, &out) }))
			require.Contains(t, s.out.String(), want)
		})
	}
}

// TestTagReplacesWebhooks checks that a tag of Istio moves without a moment in which nothing selects its Pods, and that none
// of Istio's webhooks remain.
func TestTagReplacesWebhooks(t *testing.T) {
	s := tagSession(t)
	s.cluster.add(istioTag("istio-revision-tag-prod", "prod"))
	require.ErrorContains(t, s.setTag("prod", false), "the tag points to revision old of Service istio-system/istiod-old")
	require.Empty(t, s.cluster.writes)
	require.NoError(t, s.setTag("prod", true))
	for _, w := range s.cluster.writes {
		require.NotContains(t, w, "delete")
	}
	hooks := &unstructured.Unstructured{Object: s.cluster.objects["mutatingwebhookconfigurations /istio-revision-tag-prod"]}
	require.Equal(t, "istio-system/moonsail", serviceOf(hooks))
	list, _, err := unstructured.NestedSlice(hooks.Object, "webhooks")
	require.NoError(t, err)
	for _, h := range list {
		require.Contains(t, nameIn(h), "moonsail.dev")
	}
}

// TestTagChecksBeforeItWrites checks that nothing changes if the tag cannot be set.
func TestTagChecksBeforeItWrites(t *testing.T) {
	s := tagSession(t)
	require.ErrorContains(t, s.setTag("default", true), "this is the name of the revision")
	require.NoError(t, s.install(func(o *operation) { o.Image, o.Revision = "moonsail:1.0", "blue" }))
	s.cluster.writes = nil
	s.cluster.add(istioTag("istio-revision-tag-default", "default"))
	o := s.operation(func(o *operation) { o.Revision = "blue" })
	err := o.run(func(ctx context.Context) error { return o.setTag(ctx, "default", true) })
	require.ErrorContains(t, err, "these webhooks select istio-injection=enabled, too")
	require.Empty(t, s.cluster.writes)
}

// TestTagOfAnotherNamespace checks that a tag does not point to a Service that does not exist.
func TestTagOfAnotherNamespace(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(func(o *operation) { o.Image, o.Revision, o.Namespace = "moonsail:1.0", "blue", "mesh" }))
	s.cluster.writes = nil
	set := func(namespace string) error {
		o := s.operation(func(o *operation) { o.Revision, o.Namespace = "blue", namespace })
		return o.run(func(ctx context.Context) error { return o.setTag(ctx, "prod", true) })
	}
	err := set("istio-system")
	require.ErrorContains(t, err, "its Service is mesh/moonsail-blue, and the tag would point to istio-system/moonsail-blue")
	require.ErrorContains(t, err, "-n mesh")
	require.Empty(t, s.cluster.writes)
	require.NoError(t, set("mesh"))
}

// TestTagHasPoliciesOfRevision checks that values of a revision about injection also count for its tags.
func TestTagHasPoliciesOfRevision(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(func(o *operation) {
		o.Image, o.Revision = "moonsail:1.0", "v1"
		for _, v := range []string{"failurePolicy=Ignore", "reinvocationPolicy=IfNeeded", "enableNamespacesByDefault=true"} {
			o.set = append(o.set, "sidecarInjectorWebhook."+v)
		}
		o.set = append(o.set, "sidecarInjectorWebhookAnnotations.example\\.com/a=b")
	}))
	for tag, want := range map[string]int{"prod": 2, "default": 5} {
		o := s.operation(func(o *operation) { o.Revision = "v1" })
		require.NoError(t, o.run(func(ctx context.Context) error { return o.setTag(ctx, tag, false) }))
		list, _, err := unstructured.NestedSlice(s.cluster.objects["mutatingwebhookconfigurations /istio-revision-tag-"+tag], "webhooks")
		require.NoError(t, err)
		hooks := &unstructured.Unstructured{Object: s.cluster.objects["mutatingwebhookconfigurations /istio-revision-tag-"+tag]}
		require.Equal(t, "b", hooks.GetAnnotations()["example.com/a"], tag)
		require.Len(t, list, want)
		for _, h := range list {
			m, _ := h.(map[string]any)
			require.Equal(t, "Ignore", m["failurePolicy"], tag)
			require.Equal(t, "IfNeeded", m["reinvocationPolicy"], tag)
		}
	}
}

// TestTagRemoval checks that only tags of these commands are removed, and that users of the tag are named.
func TestTagRemoval(t *testing.T) {
	t.Run("of Istio", func(t *testing.T) {
		s := tagSession(t)
		s.cluster.add(istioTag("istio-revision-tag-prod", "prod"))
		require.ErrorContains(t, s.removeTag("prod"), "use 'istioctl tag remove'")
		require.Empty(t, s.cluster.writes)
	})
	t.Run("of the chart", func(t *testing.T) {
		s := tagSession(t)
		s.cluster.add(istioTag("istio-revision-tag-prod", "prod"))
		hooks := unstructured.Unstructured{Object: s.cluster.objects["mutatingwebhookconfigurations /istio-revision-tag-prod"]}
		hooks.SetLabels(map[string]string{"istio.io/tag": "prod", "istio.io/rev": "default", labelChart: "moonsail"})
		require.ErrorContains(t, s.removeTag("prod"), "remove it from the value revisionTags of revision default")
	})
	t.Run("used by Pods", func(t *testing.T) {
		s := tagSession(t)
		before := s.cluster.names()
		require.NoError(t, s.setTag("prod", false))
		s.cluster.add("kind: Pod\napiVersion: v1\nmetadata: {name: a, namespace: shop, labels: {istio.io/rev: prod}}\n")
		s.stdin = answer{func() {}}
		require.NoError(t, s.removeTag("prod"))
		require.Contains(t, s.notes.String(), "The tag is selected by 1 Pod: new Pods there get no sidecar.")
		delete(s.cluster.objects, "pods shop/a")
		require.Equal(t, before, s.cluster.names())
	})
	t.Run("unknown", func(t *testing.T) {
		require.ErrorContains(t, tagSession(t).removeTag("prod"), "no such tag")
	})
}
