package install

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
)

func newUpgradeCommand() *cobra.Command {
	var o operation
	var back, reset bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Change an installed control plane",
		Long: `Change a control plane that 'moonsail install' installed: another image, other values, or the charts of
this version of the command. The command shows which fields of which objects differ, asks, applies
them, waits until the control plane is ready, and then removes objects that the charts no longer
have. Values of the installation stay unless others are given.

--rollback applies the objects of the version before; after an upgrade that failed, those of the last
version that was ready. Resource definitions stay: newer ones accept the objects of older ones.
Sidecars keep their configuration.`,
		Example: `  # Another image
  moonsail upgrade --image registry.example.com/moonsail:1.1

  # Another value; without a question
  moonsail upgrade --set replicaCount=3 --yes

  # See what would change
  moonsail upgrade --image registry.example.com/moonsail:1.1 --dry-run

  # Go back
  moonsail upgrade --rollback`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd, func(ctx context.Context) error {
				if back {
					return o.rollback(ctx)
				}
				return o.upgrade(ctx, reset)
			})
		},
	}
	o.addFlags(cmd)
	o.addRunFlags(cmd)
	o.addWait(cmd)
	o.addYes(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&back, "rollback", false, "go back to the version before")
	fs.BoolVar(&reset, "reset-values", false, "start from the defaults of the charts, not from the values of the installation")
	for _, other := range []string{"image", "set", "values", "replicas", "reset-values"} {
		cmd.MarkFlagsMutuallyExclusive("rollback", other)
	}
	return cmd
}

// installed reads the record of the revision, which must exist.
func (o *operation) installed(ctx context.Context) (*record, error) {
	r, err := readRecord(ctx, o.cluster, o.Namespace, o.Revision)
	if err == nil && r.latest() == nil {
		err = &terminal.UserError{
			What: "no control plane of this revision was installed with 'moonsail install'", Where: "revision " + o.Revision + ", namespace " + o.Namespace,
			Next: "run 'moonsail install' (it adopts objects applied with kubectl), or 'helm upgrade' for a Helm release",
		}
	}
	return r, err
}

func (o *operation) upgrade(ctx context.Context, reset bool) error {
	old, err := o.installed(ctx)
	if err != nil {
		return err
	}
	under := old.latest()
	if reset {
		under = nil
	}
	base, controlPlane, err := o.releases(o.cmd, under)
	if err != nil {
		return wrongManifest(err)
	}
	kube, err := o.cluster.Version(ctx)
	if err != nil {
		return err
	}
	base.KubeVersion, controlPlane.KubeVersion, controlPlane.Upgrade = kube, kube, true
	to, err := newState(base, controlPlane, o.Revision)
	if err != nil {
		return wrongManifest(err)
	}
	definitions, changes, err := o.plan(ctx, base, to)
	if err != nil {
		return err
	}
	if done, err := o.propose(to, changes, old, "Apply these changes?"); done || err != nil {
		return err
	}
	ctx, cancel := o.timed()
	defer cancel()
	if err := o.change(ctx, definitions, to, old); err != nil {
		return err
	}
	return o.report(to, changes)
}

// propose shows a plan and asks. done: nothing is left to do. A version that failed still has to become ready if no object
// changes.
func (o *operation) propose(to *state, changes []change, old *record, question string) (done bool, err error) {
	if o.dryRun || !differs(changes) && old.Pending == nil {
		return true, o.report(to, changes)
	}
	if !differs(changes) {
		return false, nil
	}
	if err := o.show(o.notes, changes); err != nil {
		return true, err
	}
	return false, o.confirm(question)
}

// rollback applies the objects of the version before.
func (o *operation) rollback(ctx context.Context) error {
	old, err := o.installed(ctx)
	if err != nil {
		return err
	}
	to := old.rollbackTarget()
	if to == nil {
		return &terminal.UserError{What: "no earlier version is recorded", Where: "revision " + o.Revision, Next: "use 'moonsail upgrade' with the values of that version, or its own 'moonsail upgrade'"}
	}
	for _, one := range to.Objects {
		if _, err := kindOf(one); err != nil {
			return &terminal.UserError{What: "the earlier version has an object that this command does not know", Err: err, Next: "use the command 'moonsail' of version " + to.Version}
		}
	}
	gone, err := o.surplus(ctx, nil, to, o.note)
	if err != nil {
		return err
	}
	changes, err := plan(ctx, o.cluster, to.Objects, gone)
	if err != nil {
		return err
	}
	if done, err := o.propose(to, changes, old, "Go back to the version of "+to.Time.Format("2006-01-02 15:04:05 MST")+"?"); done || err != nil {
		return err
	}
	ctx, cancel := o.timed()
	defer cancel()
	if err := o.change(ctx, nil, to, old); err != nil {
		return err
	}
	return o.report(to, changes)
}
