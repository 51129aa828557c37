package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// tagChart is the value of labelChart of the objects of revision tags.
const tagChart = "tag"

func newUninstallCommand() *cobra.Command {
	var o operation
	var purge bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove a control plane from a cluster",
		Long: `Remove a control plane that 'moonsail install' installed, with its webhooks, roles and revision tags.
The command shows what it removes, and asks. Pods keep their sidecars, which keep their
configuration, until they are created anew.

Resource definitions with all their objects, the certificate authority, the certificates of the mesh
in each namespace, and the namespace remain, as does a ConfigMap with MeshConfig while another control
plane reads it; the last revision takes it with it. --purge removes them, too, and the control planes of all
revisions: nothing that 'moonsail install' or a control plane created remains. The namespace and
resource definitions remain if something else created them. Resource definitions and the certificate
authority remain, too, if a control plane uses them that another program installed.`,
		Example: `  # Remove the control plane
  moonsail uninstall

  # Remove a revision, without a question
  moonsail uninstall --revision canary --yes

  # Remove everything, with all VirtualServices and other objects of Istio's kinds
  moonsail uninstall --purge`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd, func(ctx context.Context) error { return o.uninstall(ctx, purge) })
		},
	}
	fs := cmd.Flags()
	namespaceFlags(cmd, &o.Namespace)
	fs.StringVarP(&o.Revision, "revision", "r", model.DefaultRevision, "`REVISION` of the control plane")
	fs.BoolVar(&purge, "purge", false, "remove all revisions, resource definitions with their objects, and the certificate authority")
	o.addRunFlags(cmd)
	o.addYes(cmd)
	cmd.MarkFlagsMutuallyExclusive("purge", "revision")
	return cmd
}

func (o *operation) uninstall(ctx context.Context, purge bool) error {
	list, err := o.toRemove(ctx, purge)
	if err != nil {
		return err
	}
	return o.remove(ctx, list, purge)
}

// remove shows what it removes, asks, and removes it.
func (o *operation) remove(ctx context.Context, list []*unstructured.Unstructured, purge bool) error {
	if len(list) == 0 {
		return &terminal.UserError{What: "nothing is installed", Where: "revision " + o.Revision, Next: "'helm list -n " + o.Namespace + "' shows an installation of Helm; remove one of kubectl with 'moonsail manifest | kubectl delete -f -'"}
	}
	var changes []change
	for _, one := range list {
		changes = append(changes, change{Action: removed, Object: titleOf(one), object: one})
	}
	if !o.dryRun && !o.yes {
		for _, c := range changes {
			fmt.Fprintln(o.notes, terminal.StyleFor(o.notes).Bad("- "+c.Object))
		}
	}
	if err := o.showDependents(ctx, purge, list); err != nil {
		return err
	}
	if err := o.confirm("Remove them?"); err != nil {
		return err
	}
	if !o.dryRun {
		if err := o.delete(list, purge); err != nil {
			return err
		}
	}
	r := result{Revision: o.Revision, Namespace: o.Namespace, DryRun: o.dryRun, Changes: changes}
	return o.out.Print(o.cmd.OutOrStdout(), r, func(w io.Writer) error {
		if o.dryRun {
			return o.show(w, changes)
		}
		_, err := fmt.Fprintf(w, "removed %s\n", terminal.Count(len(changes), "object"))
		return err
	})
}

// delete deletes objects, and with purge what control planes wrote.
func (o *operation) delete(list []*unstructured.Unstructured, purge bool) error {
	ctx, cancel := o.timed()
	defer cancel()
	progress := terminal.StartProgress(o.notes, "removing")
	defer progress.Done()
	note := func(one *unstructured.Unstructured) { progress.Update("removing " + titleOf(one)) }
	if err := deleteAll(ctx, o.cluster, list, note); err != nil || !purge {
		return err
	}
	users, err := o.otherControlPlanes(ctx)
	if err != nil {
		return err
	}
	// The control plane may have recreated some while it stopped.
	again, err := o.controlPlaneObjects(ctx, len(users) > 0)
	if err != nil {
		return err
	}
	return deleteAll(ctx, o.cluster, again, note)
}

// toRemove lists what an uninstallation removes, in order. The last revision takes with it what all share.
func (o *operation) toRemove(ctx context.Context, purge bool) ([]*unstructured.Unstructured, error) {
	revision := o.Revision
	if purge {
		revision = ""
	}
	var list []*unstructured.Unstructured
	for _, chart := range []string{tagChart, deploy.ControlPlaneChart} {
		more, err := inventory(ctx, o.cluster, chart, revision)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	list, err := o.withoutReadMeshConfig(ctx, list, o.note)
	if err != nil {
		return nil, err
	}
	users, err := o.otherControlPlanes(ctx)
	if err != nil {
		return nil, err
	}
	if purge {
		if len(users) > 0 {
			o.note("resource definitions and the certificate authority remain: these control planes use them: " + strings.Join(users, ", "))
		}
		more, err := o.controlPlaneObjects(ctx, len(users) > 0)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	shared, err := o.sharedObjects(ctx, revision, len(users) > 0)
	return append(list, shared...), err
}

// sharedObjects lists what the last revision takes with it; none if others remain. An empty revision is that of a purge: all.
func (o *operation) sharedObjects(ctx context.Context, revision string, used bool) ([]*unstructured.Unstructured, error) {
	all, err := inventory(ctx, o.cluster, deploy.ControlPlaneChart, "")
	if err != nil {
		return nil, err
	}
	var left []*unstructured.Unstructured // MeshConfig of revisions that are gone, which this one reads
	for _, one := range all {
		switch {
		case revision == "" || one.GetLabels()[labelRevision] == revision:
		case isMeshConfig(one):
			left = append(left, one)
		default:
			return nil, nil
		}
	}
	left, err = o.withoutReadMeshConfig(ctx, left, o.note)
	if err != nil || used {
		return left, err
	}
	shared, err := inventory(ctx, o.cluster, deploy.BaseChart, "")
	if err != nil {
		return nil, err
	}
	for _, one := range shared {
		if revision == "" || one.GetKind() != definitions.name && one.GetKind() != namespaces.name {
			left = append(left, one)
		}
	}
	return left, nil
}

// Objects that control planes write.
const (
	rootConfigMap = "istio-ca-root-cert"
	dependencies  = "moonsail-dependencies"
	caSecret      = "istio-ca-secret"
)

// ourForeignSelector selects Deployments of Moonsail that these commands did not install.
const ourForeignSelector = labelName + "=" + ourName + ",!" + labelChart

var ourLeases = []string{"moonsail-heartbeat", "moonsail-status-leader"}

// otherControlPlanes names the Deployments of control planes that these commands did not install: istiod, and Moonsail by Helm
// or kubectl. They use the resource definitions, and may share the certificate authority.
func (o *operation) otherControlPlanes(ctx context.Context) ([]string, error) {
	var out []string
	for _, selector := range []string{istiodSelector, ourForeignSelector} {
		list, err := o.cluster.List(ctx, deployments.GroupVersionResource, "", selector)
		if err != nil {
			return nil, err
		}
		for i := range list {
			out = append(out, list[i].GetNamespace()+"/"+list[i].GetName())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// isAlone reports whether all control planes of Moonsail in the namespace are of these commands. Others share their leases
// and what is learned.
func (o *operation) isAlone(ctx context.Context) (bool, error) {
	list, err := o.cluster.List(ctx, deployments.GroupVersionResource, o.Namespace, ourForeignSelector)
	return len(list) == 0, err
}

// controlPlaneObjects lists the objects that control planes wrote. shared: others use the certificate authority, which stays.
func (o *operation) controlPlaneObjects(ctx context.Context, shared bool) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	add := func(k kind, namespace, name string) error {
		live, err := o.cluster.Get(ctx, k.GroupVersionResource, namespace, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			live.SetGroupVersionKind(k.GroupVersion().WithKind(k.name))
			out = append(out, live)
		}
		return err
	}
	alone, err := o.isAlone(ctx)
	if err != nil {
		return nil, err
	}
	if alone {
		for _, name := range ourLeases {
			if err := add(leases, o.Namespace, name); err != nil {
				return nil, err
			}
		}
		if err := add(configMaps, o.Namespace, dependencies); err != nil {
			return nil, err
		}
	}
	if shared {
		return out, nil
	}
	if err := add(secrets, o.Namespace, caSecret); err != nil {
		return nil, err
	}
	list, err := o.cluster.Named(ctx, configMaps.GroupVersionResource, rootConfigMap)
	for i := range list {
		list[i].SetGroupVersionKind(configMaps.GroupVersion().WithKind(configMaps.name))
		out = append(out, &list[i])
	}
	return out, err
}

// showDependents shows what is lost with the objects that are removed, also with --yes and --dry-run.
func (o *operation) showDependents(ctx context.Context, purge bool, list []*unstructured.Unstructured) error {
	for _, one := range list {
		if one.GetKind() != definitions.name {
			continue
		}
		n, err := o.instances(ctx, one)
		switch {
		case err != nil:
			fmt.Fprintf(o.notes, "also removed: objects of kind %s, which cannot be counted: %v\n", kindDefined(one), err)
		case n > 0:
			fmt.Fprintf(o.notes, "also removed: %s of kind %s\n", terminal.Count(n, "object"), kindDefined(one))
		}
	}
	sidecars, routers, err := o.injectedPods(ctx, purge)
	if sidecars > 0 {
		fmt.Fprintf(o.notes, "Pods with sidecars that no longer get configuration: %d. Remove the labels istio-injection and istio.io/rev of their namespaces, and restart them.\n", sidecars)
	}
	if routers > 0 {
		fmt.Fprintf(o.notes, "Pods of gateways that no longer get configuration: %d. Remove them, or install another control plane for them.\n", routers)
	}
	return err
}

func kindDefined(definition *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	return name
}

// instances counts the objects of a defined kind.
func (o *operation) instances(ctx context.Context, definition *unstructured.Unstructured) (int, error) {
	plural, group, _ := strings.Cut(definition.GetName(), ".")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		if m["storage"] != true {
			continue
		}
		version, _ := m["name"].(string)
		return o.cluster.Count(ctx, schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	}
	return 0, errors.New("no version is stored")
}

// injectedPods counts Pods with sidecars, and Pods of gateways, which lack the label of sidecars. They are those of the revision
// unless all is set.
func (o *operation) injectedPods(ctx context.Context, all bool) (sidecars, routers int, err error) {
	list, err := o.cluster.List(ctx, pods.GroupVersionResource, "", "service.istio.io/canonical-name")
	for i := range list {
		labels, annotations := list[i].GetLabels(), list[i].GetAnnotations()
		switch {
		case !all && cmp.Or(annotations[model.LabelRevision], model.DefaultRevision) != o.Revision:
		case labels[model.LabelTLSMode] == model.TLSModeLabelIstio:
			sidecars++
		case annotations["sidecar.istio.io/status"] != "" || labels[model.LabelGatewayName] != "":
			routers++
		}
	}
	return sidecars, routers, err
}
