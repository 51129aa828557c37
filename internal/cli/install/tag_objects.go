package install

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// tagObjects renders the objects of a tag: the webhooks, and the right to write their CA. all: the tag "default" also selects
// namespaces without labels.
func (o *operation) tagObjects(tag string, all bool) ([]*unstructured.Unstructured, error) {
	values := map[string]any{"revisionTags": []any{tag}, "sidecarInjectorWebhook": map[string]any{"enableNamespacesByDefault": all}}
	release, err := deploy.Options{Image: "moonsail", Revision: o.Revision, Namespace: o.Namespace, Values: values}.Release()
	if err != nil {
		return nil, err
	}
	rendered, err := release.Objects()
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, one := range rendered {
		if one.GetLabels()[labelTag] == tag {
			out = append(out, one)
		}
	}
	mark(out, tagChart, o.Revision)
	return out, nil
}

// injectorOf returns the name of the webhooks of injection of a revision.
func injectorOf(revision string) string { return deploy.Named("moonsail-injector", revision) }

// injectorFor returns the revision's own webhooks. They must call the Service that those of a tag call: the names of a revision's
// webhooks do not tell its namespace.
func (o *operation) injectorFor(ctx context.Context, hooks *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	own, err := o.cluster.Get(ctx, mutating.GroupVersionResource, "", injectorOf(o.Revision))
	if apierrors.IsNotFound(err) {
		return nil, &terminal.UserError{What: "no control plane of Moonsail has this revision", Where: "revision " + o.Revision, Next: "see 'moonsail tag list' and 'moonsail install --revision'"}
	}
	if err != nil {
		return nil, err
	}
	if has := serviceOf(own); has != serviceOf(hooks) {
		namespace, _, _ := strings.Cut(has, "/")
		return nil, &terminal.UserError{
			What:  "its Service is " + terminal.OrDash(has) + ", and the tag would point to " + serviceOf(hooks),
			Where: "revision " + o.Revision + ", " + titleOf(own), Next: "name the namespace of the control plane: -n " + cmp.Or(namespace, "NAMESPACE"),
		}
	}
	return own, nil
}

// noOtherDefault reports an error if another configuration selects istio-injection=enabled.
func (o *operation) noOtherDefault(ctx context.Context, own string) error {
	list, err := o.cluster.List(ctx, mutating.GroupVersionResource, "", "")
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].GetName() != own && selectedBy(&list[i], model.DefaultRevision) != "" {
			return &terminal.UserError{
				What:  "these webhooks select istio-injection=enabled, too: Pods would get two sidecars",
				Where: titleOf(&list[i]), Next: "uninstall that control plane first, or remove these webhooks",
			}
		}
	}
	return nil
}

// inherited are the fields of a revision's webhooks that those of its tags have, too.
var inherited = [][]string{{"clientConfig", "caBundle"}, {"failurePolicy"}, {"reinvocationPolicy"}}

// ownedDomains are the domains of annotations that tools write about one object. A tag does not inherit them.
var ownedDomains = []string{"kubectl.kubernetes.io/", "meta.helm.sh/", "moonsail.dev/"}

// inherit copies fields of a revision's webhooks to those of a tag: the CA, so that the API server trusts them at once, and what
// the revision's values chose, with annotations.
func inherit(hooks, own *unstructured.Unstructured) {
	annotations := own.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		return slices.ContainsFunc(ownedDomains, func(domain string) bool { return strings.HasPrefix(name, domain) })
	})
	if len(annotations) > 0 {
		maps.Copy(annotations, hooks.GetAnnotations())
		hooks.SetAnnotations(annotations)
	}
	have, _, _ := unstructured.NestedSlice(own.Object, "webhooks")
	if len(have) == 0 {
		return
	}
	first, _ := have[0].(map[string]any)
	list, _, _ := unstructured.NestedSlice(hooks.Object, "webhooks")
	for _, h := range list {
		m, _ := h.(map[string]any)
		for _, path := range inherited {
			if v, _, _ := unstructured.NestedString(first, path...); v != "" {
				_ = unstructured.SetNestedField(m, v, path...) // the chart renders maps
			}
		}
	}
	_ = unstructured.SetNestedSlice(hooks.Object, list, "webhooks") // it was a list before
}

// selectsAll reports whether the values of the revision select namespaces without labels. Only the tag "default" has a webhook
// for them: the revision's own webhooks do not show it.
func (o *operation) selectsAll(ctx context.Context, tag string) (bool, error) {
	if tag != model.DefaultRevision {
		return false, nil
	}
	r, err := readRecord(ctx, o.cluster, o.Namespace, o.Revision)
	if err != nil || r.latest() == nil { // of Helm, for example
		return false, err
	}
	all, _, _ := unstructured.NestedBool(r.latest().Values, "sidecarInjectorWebhook", "enableNamespacesByDefault")
	return all, nil
}

// usersOfTags returns the namespaces that select each tag or revision.
func (o *operation) usersOfTags(ctx context.Context) (map[string][]string, error) {
	list, err := o.cluster.List(ctx, namespaces.GroupVersionResource, "", "")
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for i := range list {
		labels := list[i].GetLabels()
		if labels["istio-injection"] == "enabled" {
			out[model.DefaultRevision] = append(out[model.DefaultRevision], list[i].GetName())
		} else if rev := labels[model.LabelRevision]; rev != "" {
			out[rev] = append(out[rev], list[i].GetName())
		}
	}
	return out, nil
}
