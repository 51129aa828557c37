package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// defaultTimeout is how long a command waits for a control plane.
const defaultTimeout = 5 * time.Minute

// operation is what install, upgrade and uninstall share.
type operation struct {
	chartFlags
	flags   clusterFlags
	out     terminal.Output
	dryRun  bool
	yes     bool
	wait    bool
	timeout time.Duration

	cmd     *cobra.Command
	cluster objects
	notes   io.Writer // messages and progress
}

// addRunFlags adds the flags that all of them have.
func (o *operation) addRunFlags(cmd *cobra.Command) {
	o.flags.addFlags(cmd)
	o.out.AddFlag(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&o.dryRun, "dry-run", false, "show what would change, and change nothing")
	fs.DurationVar(&o.timeout, "timeout", defaultTimeout, "how long to wait for the cluster")
}

func (o *operation) addYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
}

func (o *operation) addWait(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until the control plane is ready")
}

// with connects to the cluster and runs f within the timeout. What f does after a question has a timeout of its own (timed).
func (o *operation) with(cmd *cobra.Command, f func(context.Context) error) error {
	cluster, done, err := o.flags.connect()
	if err != nil {
		return err
	}
	defer done()
	o.cmd, o.cluster, o.notes = cmd, cluster, cmd.ErrOrStderr()
	ctx, cancel := o.timed()
	defer cancel()
	err = f(ctx)
	var reported *terminal.UserError
	var exit terminal.ExitCode
	var usage terminal.UsageError
	switch {
	case err == nil, errors.As(err, &reported), errors.As(err, &exit), errors.As(err, &usage):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &terminal.UserError{What: "the cluster did not answer in time", Err: err, Next: "raise --timeout"}
	case cmd.Context().Err() != nil:
		return cmd.Context().Err()
	}
	return o.flags.Explain(err)
}

// note tells the user something that is not a result.
func (o *operation) note(text string) { fmt.Fprintln(o.notes, "note: "+text) }

// timed returns the context of one phase of a command: reading the cluster, or changing it.
func (o *operation) timed() (context.Context, context.CancelFunc) {
	return context.WithTimeout(o.cmd.Context(), o.timeout)
}

// checkOwner reports an error if a control plane of this revision exists that Helm or others installed.
func (o *operation) checkOwner(ctx context.Context, list []*unstructured.Unstructured) error {
	for _, want := range list {
		if want.GetKind() != deployments.name && want.GetKind() != services.name {
			continue
		}
		k, err := kindOf(want)
		if err != nil {
			return err
		}
		live, err := o.cluster.Get(ctx, k.GroupVersionResource, want.GetNamespace(), want.GetName())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return refused("read", want, err)
		}
		if live.GetLabels()[labelManaged] == managedByHelm {
			return &terminal.UserError{What: "Helm installed this object", Where: titleOf(want), Next: "use 'helm upgrade' and 'helm uninstall', or another --revision"}
		}
		if labels := live.GetLabels(); labels["app"] == "istiod" && labels[labelName] != ourName {
			return &terminal.UserError{What: "this object belongs to Istio", Where: titleOf(want), Next: "install with another --revision, for example --revision moonsail (docs/migrate-from-istio.md)"}
		}
	}
	return nil
}

// ensureNamespace creates the namespace if it does not exist. An uninstallation with --purge removes what it created.
func (o *operation) ensureNamespace(ctx context.Context) error {
	_, err := o.cluster.Get(ctx, namespaces.GroupVersionResource, "", o.Namespace)
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": o.Namespace},
	}}
	mark([]*unstructured.Unstructured{ns}, deploy.BaseChart, "")
	_, err = o.cluster.Apply(ctx, namespaces.GroupVersionResource, ns, false)
	if err != nil {
		return refused("create", ns, err)
	}
	return nil
}

// apply brings a cluster to a state: resource definitions first, then the control plane, then what the state no longer has
// is removed. canRollBack: a version that was ready is known.
func (o *operation) apply(ctx context.Context, base []*unstructured.Unstructured, to *state, canRollBack bool) error {
	progress := terminal.StartProgress(o.notes, "reading the cluster")
	defer progress.Done()
	if err := applyAll(ctx, o.cluster, base, func(o *unstructured.Unstructured) { progress.Update("applying " + titleOf(o)) }); err != nil {
		return err
	}
	progress.Update("waiting for resource definitions")
	if err := awaitEstablished(ctx, o.cluster, base); err != nil {
		return err
	}
	if err := applyAll(ctx, o.cluster, to.Objects, func(o *unstructured.Unstructured) { progress.Update("applying " + titleOf(o)) }); err != nil {
		return err
	}
	gone, err := o.surplus(ctx, base, to, func(string) {}) // the plan has said what remains
	if err != nil {
		return err
	}
	if o.wait {
		if err := awaitReady(ctx, o.cluster, to.Objects, o.notes, progress, canRollBack); err != nil {
			return err
		}
	}
	return deleteAll(ctx, o.cluster, gone, func(o *unstructured.Unstructured) { progress.Update("removing " + titleOf(o)) })
}
