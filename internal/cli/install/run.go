package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
	chosen
	access  access
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
	o.access.addFlags(cmd)
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

// with connects to the cluster and runs f within the timeout.
func (o *operation) with(cmd *cobra.Command, f func(context.Context) error) error {
	cluster, done, err := o.access.connect()
	if err != nil {
		return err
	}
	defer done()
	o.cmd, o.cluster, o.notes = cmd, cluster, cmd.ErrOrStderr()
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	err = f(ctx)
	var told *terminal.UserError
	var exit terminal.ExitCode
	var usage terminal.UsageError
	switch {
	case err == nil, errors.As(err, &told), errors.As(err, &exit), errors.As(err, &usage):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &terminal.UserError{What: "the cluster did not answer in time", Err: err, Next: "raise --timeout"}
	case cmd.Context().Err() != nil:
		return cmd.Context().Err()
	}
	return o.access.Explain(err)
}

// confirm asks a question on the terminal.
func (o *operation) confirm(question string) error {
	if o.yes || o.dryRun {
		return nil
	}
	if in, ok := o.cmd.InOrStdin().(*os.File); !ok || !terminal.IsTerminal(in) {
		return terminal.UsageError{Err: errors.New("this needs a confirmation, and standard input is not a terminal: give --yes")}
	}
	fmt.Fprintf(o.notes, "%s [y/N] ", question)
	answer, err := bufio.NewReader(o.cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &terminal.UserError{What: "nothing was changed"}
}

// notOurs reports an error if a control plane of this revision exists that Helm or others installed.
func (o *operation) notOurs(ctx context.Context, list []*unstructured.Unstructured) error {
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
		if live.GetLabels()["app"] == "istiod" {
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
// is removed.
func (o *operation) apply(ctx context.Context, base []*unstructured.Unstructured, to *state) error {
	progress := terminal.StartProgress(o.notes, "reading the cluster")
	defer progress.Done()
	if err := o.ensureNamespace(ctx); err != nil {
		return err
	}
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
	have, err := inventory(ctx, o.cluster, deploy.ControlPlaneChart, o.Revision)
	if err != nil {
		return err
	}
	if o.wait {
		if err := awaitReady(ctx, o.cluster, to.Objects, o.notes, progress); err != nil {
			return err
		}
	}
	return deleteAll(ctx, o.cluster, surplus(have, to.Objects), func(o *unstructured.Unstructured) { progress.Update("removing " + titleOf(o)) })
}

// surplus returns the objects of the inventory that a state does not have.
func surplus(have, want []*unstructured.Unstructured) []*unstructured.Unstructured {
	wanted := map[string]bool{}
	for _, o := range want {
		wanted[titleOf(o)] = true
	}
	var out []*unstructured.Unstructured
	for _, o := range have {
		if !wanted[titleOf(o)] && !isRecord(o) {
			out = append(out, o)
		}
	}
	return out
}

// show prints a plan. Unchanged objects are counted.
func (o *operation) show(w io.Writer, changes []change) error {
	same := 0
	style := terminal.StyleFor(w)
	for _, c := range changes {
		switch c.Action {
		case unchanged, kept:
			same++
			continue
		case created:
			fmt.Fprintln(w, style.Good("+ "+c.Object))
		case removed:
			fmt.Fprintln(w, style.Bad("- "+c.Object))
		default:
			fmt.Fprintln(w, style.Warn("~ "+c.Object))
		}
		for _, f := range c.Fields {
			fmt.Fprintln(w, "    "+f)
		}
	}
	_, err := fmt.Fprintf(w, "%s unchanged\n", terminal.Count(same, "object"))
	return err
}
