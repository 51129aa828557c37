package install

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// labelTag is Istio's label of the webhook configuration of a tag.
const labelTag = "istio.io/tag"

func newTagCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Give revisions of control planes further names",
		Long: `A tag is a further name of a revision, as in Istio: the label istio.io/rev=TAG of a namespace or Pod selects
the control plane to which the tag points. To move all these namespaces to another revision, set the
tag anew and restart their Pods. The tag "default" stands for istio-injection=enabled, too.`,
		Example: `  # Namespaces with istio.io/rev=prod use revision 1-0
  moonsail tag set prod --revision 1-0

  # Later, revision 1-1
  moonsail tag set prod --revision 1-1 --overwrite
  kubectl -n shop rollout restart deployment`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTagSetCommand(), newTagListCommand(), newTagRemoveCommand(), newTagGenerateCommand())
	return cmd
}

// tagFlags adds the flags that all commands of tags have.
func (o *operation) tagFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&o.Namespace, "namespace", "n", deploy.DefaultNamespace, "`NAMESPACE` of the control plane")
	fs.DurationVar(&o.timeout, "timeout", defaultTimeout, "how long to wait for the cluster")
	o.access.addFlags(cmd)
	o.out.AddFlag(cmd)
}

func newTagSetCommand() *cobra.Command {
	var o operation
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "set TAG --revision REVISION",
		Short: "Point a tag to a revision",
		Long: `Point a tag to a revision: create its MutatingWebhookConfiguration, and the right of the control plane to
write its certificate into it. A tag that points to another revision, also of Istio, is moved only
with --overwrite. Running Pods keep their sidecars until they are created anew.`,
		Example: `  # Create a tag
  moonsail tag set prod --revision 1-0

  # Move it, for example from a revision of Istio
  moonsail tag set prod --revision 1-1 --overwrite`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd, func(ctx context.Context) error { return o.setTag(ctx, args[0], overwrite) })
		},
	}
	o.tagFlags(cmd)
	cmd.Flags().StringVar(&o.Revision, "revision", "", "`REVISION` to which the tag points")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "move a tag that points to another revision")
	_ = cmd.MarkFlagRequired("revision") // the only error is a flag that does not exist
	return cmd
}

func newTagGenerateCommand() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:   "generate TAG --revision REVISION",
		Short: "Print the objects of a tag",
		Long:  "Print the objects that 'moonsail tag set' creates, without a cluster. The control plane adds its certificate.",
		Example: `  # Print the objects of a tag
  moonsail tag generate prod --revision 1-0 | kubectl apply -f -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := o.tagObjects(args[0])
			if err != nil {
				return wrongManifest(err)
			}
			for i, one := range list {
				text, err := yaml.Marshal(one.Object)
				if err != nil {
					return err
				}
				if i > 0 {
					text = append([]byte("---\n"), text...)
				}
				if _, err := cmd.OutOrStdout().Write(text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", deploy.DefaultNamespace, "`NAMESPACE` of the control plane")
	cmd.Flags().StringVar(&o.Revision, "revision", "", "`REVISION` to which the tag points")
	_ = cmd.MarkFlagRequired("revision") // the only error is a flag that does not exist
	return cmd
}

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

func (o *operation) setTag(ctx context.Context, tag string, overwrite bool) error {
	list, err := o.tagObjects(tag)
	if err != nil {
		return wrongManifest(err)
	}
	own, err := o.cluster.Get(ctx, mutating.GroupVersionResource, "", injectorOf(o.Revision))
	if apierrors.IsNotFound(err) {
		return &terminal.UserError{What: "no control plane of Moonsail has this revision", Where: "revision " + o.Revision, Next: "see 'moonsail tag list' and 'moonsail install --revision'"}
	}
	if err != nil {
		return err
	}
	if tag == o.Revision {
		return terminal.UsageError{Err: fmt.Errorf("tag %s: it is the name of the revision already", tag)}
	}
	hooks := list[slices.IndexFunc(list, func(one *unstructured.Unstructured) bool { return one.GetKind() == mutating.name })]
	live, err := o.cluster.Get(ctx, mutating.GroupVersionResource, "", hooks.GetName())
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil {
		if at := live.GetLabels()[model.LabelRevision]; !overwrite && (at != o.Revision || serviceOf(live) != o.Namespace+"/"+nameOf(o.Revision)) {
			return &terminal.UserError{What: "the tag points to revision " + at + " of Service " + serviceOf(live), Where: "tag " + tag, Next: "move it with --overwrite"}
		}
		// Webhooks of another mesh have other names; a server-side apply would keep them.
		if serviceOf(live) != serviceOf(hooks) {
			if err := o.cluster.Delete(ctx, mutating.GroupVersionResource, "", live.GetName()); err != nil {
				return refused("replace", live, err)
			}
		}
	}
	if tag == model.DefaultRevision {
		if err := o.noOtherDefault(ctx, hooks.GetName()); err != nil {
			return err
		}
	}
	trustAs(hooks, own)
	if err := applyAll(ctx, o.cluster, list, func(*unstructured.Unstructured) {}); err != nil {
		return err
	}
	return o.out.Print(o.cmd.OutOrStdout(), tagRow{Tag: tag, Revision: o.Revision, Service: serviceOf(hooks)}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "tag %s points to revision %s. Namespaces select it with: kubectl label namespace NAMESPACE istio-injection- istio.io/rev=%s --overwrite\n", tag, o.Revision, tag)
		return err
	})
}

func injectorOf(revision string) string {
	if revision == model.DefaultRevision {
		return "moonsail-injector"
	}
	return "moonsail-injector-" + revision
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

// tagRow is a tag in a list.
type tagRow struct {
	Tag        string   `json:"tag"`
	Revision   string   `json:"revision"`
	Service    string   `json:"service"`
	Namespaces []string `json:"namespaces"`
}

func newTagListCommand() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tags and the namespaces that use them",
		Long:  "List tags of Moonsail and Istio, the revision to which each points, and the namespaces that select it.",
		Example: `  # List tags
  moonsail tag list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd, func(ctx context.Context) error { return o.listTags(ctx) })
		},
	}
	o.tagFlags(cmd)
	return cmd
}

func (o *operation) listTags(ctx context.Context) error {
	configs, err := o.cluster.List(ctx, mutating.GroupVersionResource, "", labelTag)
	if err != nil {
		return err
	}
	users, err := o.usersOfTags(ctx)
	if err != nil {
		return err
	}
	rows := []tagRow{}
	for i := range configs {
		tag := configs[i].GetLabels()[labelTag]
		rows = append(rows, tagRow{tag, configs[i].GetLabels()[model.LabelRevision], serviceOf(&configs[i]), users[tag]})
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Tag < rows[j].Tag })
	return o.out.Print(o.cmd.OutOrStdout(), rows, func(w io.Writer) error {
		t := terminal.NewTable("TAG", "REVISION", "SERVICE", "NAMESPACES")
		for _, r := range rows {
			t.Row(r.Tag, r.Revision, r.Service, terminal.OrDash(joined(r.Namespaces)))
		}
		return t.Write(w)
	})
}

func joined(names []string) string {
	out := ""
	for i, n := range names {
		if i > 0 {
			out += ","
		}
		out += n
	}
	return out
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

func newTagRemoveCommand() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:     "remove TAG",
		Aliases: []string{"delete", "rm"},
		Short:   "Remove a tag",
		Long: `Remove a tag. If namespaces select it, the command asks first: their new Pods get no sidecar. Running Pods
keep theirs.`,
		Example: `  # Remove a tag
  moonsail tag remove prod`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd, func(ctx context.Context) error { return o.removeTag(ctx, args[0]) })
		},
	}
	o.tagFlags(cmd)
	o.addYes(cmd)
	return cmd
}

func (o *operation) removeTag(ctx context.Context, tag string) error {
	var list []*unstructured.Unstructured
	for _, k := range []kind{mutating, bindings, roles} {
		found, err := o.cluster.List(ctx, k.GroupVersionResource, "", labelTag+"="+tag)
		if err != nil {
			return err
		}
		for i := range found {
			found[i].SetGroupVersionKind(k.GroupVersion().WithKind(k.name))
			list = append(list, &found[i])
		}
	}
	if len(list) == 0 {
		return &terminal.UserError{What: "no such tag", Where: "tag " + tag, Next: "see 'moonsail tag list'"}
	}
	users, err := o.usersOfTags(ctx)
	if err != nil {
		return err
	}
	if used := users[tag]; len(used) > 0 {
		if err := o.confirm(fmt.Sprintf("Namespaces %s select the tag; new Pods there get no sidecar. Remove it?", joined(used))); err != nil {
			return err
		}
	}
	if err := deleteAll(ctx, o.cluster, list, func(*unstructured.Unstructured) {}); err != nil {
		return err
	}
	return o.out.Print(o.cmd.OutOrStdout(), map[string]string{"removed": tag}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "tag %s is removed\n", tag)
		return err
	})
}
