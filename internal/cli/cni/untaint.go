package cni

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/sidecar/cni/untaint"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// untaintFlags are the flags of `moonsail cni untaint`.
type untaintFlags struct {
	cluster   client.Cluster
	logging   terminal.Logging
	namespace string
	daemonSet string
	taint     string
}

// newUntaintCommand returns the command `moonsail cni untaint`.
func newUntaintCommand() *cobra.Command {
	f := &untaintFlags{}
	cmd := &cobra.Command{
		Use:   "untaint",
		Short: "Remove the taint of nodes whose CNI agent is ready",
		Long: `Remove the taint of nodes whose CNI agent is ready, until the command is stopped. The tool that adds
nodes to the cluster must add the taint to them. Then no Pod starts on a node before the plugin.`,
		Example: `  # Run it in a Pod
  moonsail cni untaint`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().StringVar(&f.namespace, "namespace", "istio-system", "`NAMESPACE` of the agents")
	cmd.Flags().StringVar(&f.daemonSet, "daemonset", "moonsail-cni-node", "`NAME` of the agents' DaemonSet, the value of the label k8s-app of their Pods")
	cmd.Flags().StringVar(&f.taint, "taint", untaint.DefaultTaint, "`KEY` of the taint")
	f.cluster.AddFlags(cmd)
	f.logging.AddFlags(cmd)
	terminal.EnvFlag(cmd, "namespace", "POD_NAMESPACE")
	terminal.EnvFlags(cmd)
	return cmd
}

func (f *untaintFlags) run(cmd *cobra.Command) error {
	log, err := f.logging.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	api, err := connect(&f.cluster)
	if err != nil {
		return err
	}
	defer api.Close()
	nodes := &kube.TaintedNodes{
		Namespace: f.namespace, Changed: make(chan struct{}, 1),
		Record: warnOnce(func(err error) { warnRequest(log, err) }),
	}
	if err := nodes.Connect(api); err != nil {
		return err
	}
	controller := &untaint.Controller{
		Cluster: nodes, Taint: f.taint, Agents: map[string]string{"k8s-app": f.daemonSet}, Changed: nodes.Changed, Log: log,
	}
	running, ctx := errgroup.WithContext(cmd.Context())
	running.Go(func() error { return nodes.Run(ctx) })
	running.Go(func() error { return controller.Run(ctx) })
	if err := running.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
