package install

import (
	"cmp"
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// tagObjects renders the objects of a tag: the webhooks, and the right to write their CA.
func (o *operation) tagObjects(tag string) ([]*unstructured.Unstructured, error) {
	release, err := deploy.Options{Image: "moonsail", Revision: o.Revision, Namespace: o.Namespace, Values: map[string]any{"revisionTags": []any{tag}}}.Release()
	if err != nil {
		return nil, err
	}
	all, err := release.Objects()
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, one := range all {
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

// trustAs copies the CA of a revision's webhooks, so that the API server trusts those of the tag at once.
func trustAs(hooks, own *unstructured.Unstructured) {
	have, _, _ := unstructured.NestedSlice(own.Object, "webhooks")
	if len(have) == 0 {
		return
	}
	first, _ := have[0].(map[string]any)
	ca, _, _ := unstructured.NestedString(first, "clientConfig", "caBundle")
	list, _, _ := unstructured.NestedSlice(hooks.Object, "webhooks")
	for _, h := range list {
		m, _ := h.(map[string]any)
		if config, _ := m["clientConfig"].(map[string]any); config != nil && ca != "" {
			config["caBundle"] = ca
		}
	}
	_ = unstructured.SetNestedSlice(hooks.Object, list, "webhooks") // it was a list before
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
