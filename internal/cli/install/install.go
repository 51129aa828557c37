package install

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/terminal"
)

func newInstallCommand() *cobra.Command {
	var o operation
	var skip bool
	cmd := &cobra.Command{
		Use:   "install --image IMAGE",
		Short: "Install a control plane in a cluster",
		Long: `Install a control plane in a Kubernetes cluster: resource definitions, then roles, Services, the
Deployment and webhooks of the Helm charts base and moonsail. The command checks the cluster first
as 'moonsail precheck' does, waits until the control plane is ready, and reports what keeps it from
being so.

Resource definitions of another installation stay as they are. The namespace is created if it does
not exist. Run the command again to continue after an error. 'moonsail upgrade' changes an
installation, and 'moonsail uninstall' removes it. Over an installation that is complete, the command
fails if anything would change.`,
		Example: `  # Install
  moonsail install --image registry.example.com/moonsail:0.1.0

  # With values of the charts
  moonsail install --image registry.example.com/moonsail:0.1.0 --set replicaCount=3 -f values.yaml

  # Beside Istio
  moonsail install --image registry.example.com/moonsail:0.1.0 --revision moonsail

  # See what would be created
  moonsail install --image registry.example.com/moonsail:0.1.0 --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, controlPlane, err := o.releases(cmd, nil)
			if err != nil {
				return wrongManifest(err)
			}
			return o.with(cmd, func(ctx context.Context) error { return o.install(ctx, base, controlPlane, skip) })
		},
	}
	o.addFlags(cmd)
	o.addRunFlags(cmd)
	o.addWait(cmd)
	o.addYes(cmd) // as istioctl; the command does not ask
	_ = cmd.Flags().MarkHidden("yes")
	cmd.Flags().BoolVar(&skip, "skip-precheck", false, "do not check the cluster first")
	return cmd
}

// result is what install, upgrade and uninstall print.
type result struct {
	Revision  string   `json:"revision"`
	Namespace string   `json:"namespace"`
	Version   string   `json:"version,omitempty"`
	DryRun    bool     `json:"dryRun,omitempty"`
	Changes   []change `json:"changes"`
}

func (o *operation) install(ctx context.Context, base, controlPlane deploy.Release, skip bool) error {
	kube, err := o.cluster.Version(ctx)
	if err != nil {
		return err
	}
	base.KubeVersion, controlPlane.KubeVersion = kube, kube
	to, err := newState(base, controlPlane, o.Revision)
	if err != nil {
		return wrongManifest(err)
	}
	if err := o.checkOwner(ctx, to.Objects); err != nil {
		return err
	}
	if !skip {
		if err := o.precheckFirst(ctx); err != nil {
			return err
		}
	}
	old, err := readRecord(ctx, o.cluster, o.Namespace, o.Revision)
	if err != nil {
		return err
	}
	definitions, changes, err := o.plan(ctx, base, to)
	if err != nil {
		return err
	}
	installed := old != nil && old.Current != nil
	if installed && differs(changes) {
		return &terminal.UserError{
			What: "this revision is installed, with other values or another version", Where: "revision " + o.Revision + ", namespace " + o.Namespace,
			Next: "use 'moonsail upgrade', which keeps its values",
		}
	}
	if o.dryRun || installed && old.Pending == nil {
		return o.report(to, changes)
	}
	if err := o.change(ctx, definitions, to, old); err != nil {
		return err
	}
	return o.report(to, changes)
}

// plan returns the objects of the chart base to apply, and all changes.
func (o *operation) plan(ctx context.Context, base deploy.Release, to *state) ([]*unstructured.Unstructured, []change, error) {
	list, err := base.Objects()
	if err != nil {
		return nil, nil, wrongManifest(err)
	}
	mark(list, deploy.BaseChart, "")
	list, others, err := definitionsToApply(ctx, o.cluster, list)
	if err != nil {
		return nil, nil, err
	}
	gone, err := o.surplus(ctx, list, to, o.note)
	if err != nil {
		return nil, nil, err
	}
	changes, err := plan(ctx, o.cluster, slices.Concat(list, to.Objects), gone)
	if err != nil {
		return nil, nil, err
	}
	return list, append(others, changes...), nil
}

// change records a state as pending, applies it, and records that it is ready. A later command therefore knows of a version
// that failed. old is nil for a first installation.
func (o *operation) change(ctx context.Context, base []*unstructured.Unstructured, to *state, old *record) error {
	if err := o.ensureNamespace(ctx); err != nil {
		return err
	}
	next := old.begin(to)
	if err := next.write(ctx, o.cluster, o.Namespace, o.Revision); err != nil {
		return err
	}
	if err := o.apply(ctx, base, to, next.Current != nil); err != nil {
		return err
	}
	return next.finish().write(ctx, o.cluster, o.Namespace, o.Revision)
}

// report prints what was done.
func (o *operation) report(to *state, changes []change) error {
	r := result{Revision: o.Revision, Namespace: o.Namespace, Version: to.Version, DryRun: o.dryRun, Changes: changes}
	return o.out.Print(o.cmd.OutOrStdout(), r, func(w io.Writer) error {
		if o.dryRun {
			return o.show(w, changes)
		}
		counts := map[string]int{}
		for _, c := range changes {
			counts[c.Action]++
		}
		_, err := fmt.Fprintf(w, "revision %s is installed in namespace %s: %s created, %d changed, %d removed, %d unchanged\n",
			o.Revision, o.Namespace, terminal.Count(counts[created], "object"), counts[changed], counts[removed], counts[unchanged]+counts[kept])
		return err
	})
}
