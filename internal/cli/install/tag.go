package install

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// labelTag is Istio's label of the webhook configuration of a tag.
const labelTag = "istio.io/tag"

func newTagCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Manage revision tags",
		Long: `A tag is an alias of a revision, as in Istio: the label istio.io/rev=TAG of a namespace or Pod selects the
control plane to which the tag points. To move these namespaces to another revision, point the tag at
it and restart their Pods. The tag "default" also selects istio-injection=enabled.`,
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

// tagFlags adds the flags that all commands of tags have, but -o.
func (o *operation) tagFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	namespaceFlags(cmd, &o.Namespace)
	fs.DurationVar(&o.timeout, "timeout", defaultTimeout, "how long to wait for the cluster")
	o.flags.addFlags(cmd)
}

func newTagSetCommand() *cobra.Command {
	var o operation
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "set TAG --revision REVISION",
		Short: "Point a tag to a revision",
		Long: `Point a tag to a revision: create its MutatingWebhookConfiguration, and the right of the control plane to
write its certificate into it. The webhooks have the policies of the revision's own. A tag that points to another revision, also of Istio, is moved only
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
	o.out.AddFlag(cmd)
	cmd.Flags().StringVarP(&o.Revision, "revision", "r", "", "`REVISION` to which the tag points")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "move a tag that points to another revision")
	_ = cmd.MarkFlagRequired("revision") // the only error is a flag that does not exist
	return cmd
}

func newTagGenerateCommand() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:   "generate TAG --revision REVISION",
		Short: "Print the objects of a tag",
		Long: `Print the objects that 'moonsail tag set' creates, without a cluster. The control plane adds its certificate.
The webhooks have the default policies of the chart moonsail. For others, set its value revisionTags.`,
		Example: `  # Print the objects of a tag
  moonsail tag generate prod --revision 1-0 | kubectl apply -f -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := o.tagObjects(args[0], false)
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
				if _, err := terminal.Raw(cmd.OutOrStdout()).Write(text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	namespaceFlags(cmd, &o.Namespace)
	cmd.Flags().StringVarP(&o.Revision, "revision", "r", "", "`REVISION` to which the tag points")
	_ = cmd.MarkFlagRequired("revision") // the only error is a flag that does not exist
	return cmd
}

func (o *operation) setTag(ctx context.Context, tag string, overwrite bool) error {
	if tag == o.Revision {
		return terminal.UsageError{Err: fmt.Errorf("tag %s: this is the name of the revision: use another tag", tag)}
	}
	all, err := o.selectsAll(ctx, tag)
	if err != nil {
		return err
	}
	list, err := o.tagObjects(tag, all)
	if err != nil {
		return wrongManifest(err)
	}
	hooks := list[slices.IndexFunc(list, func(one *unstructured.Unstructured) bool { return one.GetKind() == mutating.name })]
	own, err := o.injectorFor(ctx, hooks)
	if err != nil {
		return err
	}
	live, err := o.cluster.Get(ctx, mutating.GroupVersionResource, "", hooks.GetName())
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		live = nil
	} else if at := live.GetLabels()[model.LabelRevision]; !overwrite && (at != o.Revision || serviceOf(live) != serviceOf(hooks)) {
		return &terminal.UserError{What: "the tag points to revision " + at + " of Service " + serviceOf(live), Where: "tag " + tag, Next: "move it with --overwrite"}
	}
	if tag == model.DefaultRevision {
		if err := o.noOtherDefault(ctx, hooks.GetName()); err != nil {
			return err
		}
	}
	inherit(hooks, own)
	if err := o.writeTag(ctx, list, hooks, live); err != nil {
		return err
	}
	return o.out.Print(o.cmd.OutOrStdout(), tagRow{Tag: tag, Revision: o.Revision, Service: serviceOf(hooks)}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "tag %s points to revision %s. Namespaces select it with: kubectl label namespace NAMESPACE istio-injection- istio.io/rev=%s --overwrite\n", tag, o.Revision, tag)
		return err
	})
}

// writeTag writes the objects of a tag. Webhooks that call another Service are replaced in one request: they have other names, so
// a server-side apply would keep them, and without webhooks new Pods would start without sidecars. live is nil if there are none.
func (o *operation) writeTag(ctx context.Context, list []*unstructured.Unstructured, hooks, live *unstructured.Unstructured) error {
	if live == nil || serviceOf(live) == serviceOf(hooks) {
		return applyAll(ctx, o.cluster, list, func(*unstructured.Unstructured) {})
	}
	rights := slices.DeleteFunc(slices.Clone(list), func(one *unstructured.Unstructured) bool { return one == hooks })
	if err := applyAll(ctx, o.cluster, rights, func(*unstructured.Unstructured) {}); err != nil {
		return err
	}
	next := hooks.DeepCopy()
	next.SetResourceVersion(live.GetResourceVersion())
	if _, err := o.cluster.Update(ctx, mutating.GroupVersionResource, next); err != nil {
		return refused("replace", hooks, err)
	}
	return nil
}

// tagRow is a tag in a list.
type tagRow struct {
	Tag        string   `json:"tag"`
	Revision   string   `json:"revision"`
	Service    string   `json:"service"`
	Namespaces []string `json:"namespaces"`
	Webhooks   string   `json:"webhooks,omitempty"` // name of the MutatingWebhookConfiguration
}

func newTagListCommand() *cobra.Command {
	var (
		o   operation
		out client.ListOutput
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tags and the namespaces that use them",
		Long:  "List tags of Moonsail and Istio, the revision to which each points, and the namespaces that select it.",
		Example: `  # List tags
  moonsail tag list

  # Print the revision of a tag
  moonsail tag list -o jsonpath='{.tags[?(@.tag=="prod")].revision}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd, func(ctx context.Context) error { return o.listTags(ctx, &out) })
		},
	}
	o.tagFlags(cmd)
	out.AddFlag(cmd)
	return cmd
}

func (o *operation) listTags(ctx context.Context, out *client.ListOutput) error {
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
		rows = append(rows, tagRow{tag, configs[i].GetLabels()[model.LabelRevision], serviceOf(&configs[i]), users[tag], configs[i].GetName()})
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Tag < rows[j].Tag })
	return out.Print(o.cmd.OutOrStdout(), client.List{
		Value: map[string]any{"tags": rows},
		Names: func() (names []string) {
			for _, r := range rows {
				names = append(names, r.Tag)
			}
			return names
		},
		Table: func(w io.Writer) error { return printTags(w, rows, out.IsWide()) },
	})
}

func printTags(w io.Writer, rows []tagRow, wide bool) error {
	headings := []string{"TAG", "REVISION", "SERVICE", "NAMESPACES"}
	if wide {
		headings = append(headings, "WEBHOOKS")
	}
	t := terminal.NewTable(headings...)
	for _, r := range rows {
		cells := []string{r.Tag, r.Revision, r.Service, terminal.OrDash(strings.Join(r.Namespaces, ","))}
		if wide {
			cells = append(cells, r.Webhooks)
		}
		t.Row(cells...)
	}
	return t.Write(w)
}

func newTagRemoveCommand() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:     "remove TAG",
		Aliases: []string{"delete", "rm"},
		Short:   "Remove a tag",
		Long: `Remove a tag that 'moonsail tag set' created. If namespaces or Pods select it, the command asks first: their
new Pods get no sidecar. Running Pods keep theirs.`,
		Example: `  # Remove a tag
  moonsail tag remove prod`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd, func(ctx context.Context) error { return o.removeTag(ctx, args[0]) })
		},
	}
	o.tagFlags(cmd)
	o.out.AddFlag(cmd)
	o.addYes(cmd)
	return cmd
}

// checkTagOwner returns an error if another program created an object of a tag.
func checkTagOwner(tag string, o *unstructured.Unstructured) error {
	labels := o.GetLabels()
	e := &terminal.UserError{What: "this tag was not created with 'moonsail tag set'", Where: "tag " + tag + ", " + titleOf(o)}
	switch {
	case labels[labelChart] == tagChart:
		return nil
	case labels[labelChart] == deploy.ControlPlaneChart, labels[labelName] == ourName:
		e.Next = "remove it from the value revisionTags of revision " + labels[model.LabelRevision] + " with 'moonsail upgrade' or 'helm upgrade'"
	default:
		e.Next = "it points to Service " + terminal.OrDash(serviceOf(o)) + ": use 'istioctl tag remove' for a tag of Istio"
	}
	return e
}

// confirmTagRemoval asks if namespaces or Pods select the tag.
func (o *operation) confirmTagRemoval(ctx context.Context, tag string) error {
	users, err := o.usersOfTags(ctx)
	if err != nil {
		return err
	}
	selecting, err := o.cluster.List(ctx, pods.GroupVersionResource, "", model.LabelRevision+"="+tag)
	if err != nil {
		return err
	}
	var by []string
	if used := users[tag]; len(used) > 0 {
		by = append(by, "namespaces "+strings.Join(used, ", "))
	}
	if len(selecting) > 0 {
		by = append(by, terminal.Count(len(selecting), "Pod"))
	}
	if len(by) == 0 {
		return nil
	}
	return o.confirm("The tag is selected by " + strings.Join(by, ", and by ") + ": new Pods there get no sidecar. Remove it?")
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
	for _, one := range list {
		if err := checkTagOwner(tag, one); err != nil {
			return err
		}
	}
	if err := o.confirmTagRemoval(ctx, tag); err != nil {
		return err
	}
	ctx, cancel := o.timed()
	defer cancel()
	if err := deleteAll(ctx, o.cluster, list, func(*unstructured.Unstructured) {}); err != nil {
		return err
	}
	return o.out.Print(o.cmd.OutOrStdout(), map[string]string{"removed": tag}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "tag %s is removed\n", tag)
		return err
	})
}
