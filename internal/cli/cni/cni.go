// Package cni is the command `moonsail cni` with the programs around the CNI plugin: the node agent, and the removal of
// taints from nodes whose agent is ready.
package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/internal/sidecar/cni/install"
	"github.com/moonsail/moonsail/internal/sidecar/cni/node"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// NewCommand returns the command `moonsail cni`.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cni",
		Short: "Redirect the connections of Pods with a CNI plugin",
		Long: `Redirect the connections of Pods with a CNI plugin. Pods with a sidecar then need no privileges, and
pass the Pod Security Standard restricted. The chart deploy/charts/cni runs these commands.`,
		Example: `  # Run the node agent in a Pod
  moonsail cni agent --node node-1`,
	}
	cmd.AddCommand(newAgentCommand(), newUninstallCommand(), newUntaintCommand())
	return cmd
}

// folders are the flags of the folders on a node.
type folders struct{ net, bin string }

func (f *folders) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.net, "cni-net-dir", "/host/etc/cni/net.d", "`DIR` with the node's lists of CNI plugins")
	cmd.Flags().StringVar(&f.bin, "cni-bin-dir", "/host/opt/cni/bin", "`DIR` with the node's CNI plugins")
	_ = cmd.MarkFlagDirname("cni-net-dir") // the only error is a flag that does not exist
	_ = cmd.MarkFlagDirname("cni-bin-dir")
}

// agentFlags are the flags of `moonsail cni agent`.
type agentFlags struct {
	folders  folders
	cluster  client.Cluster
	logging  terminal.Logging
	api      kube.NodeAgent
	agent    node.Agent
	network  string
	program  string
	excluded []string
}

// newAgentCommand returns the command `moonsail cni agent`.
func newAgentCommand() *cobra.Command {
	f := &agentFlags{}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the CNI plugin's agent on a node",
		Long: `Run the CNI plugin's agent on a node, in a Pod of a DaemonSet. The agent

  - copies the plugin to the node, and adds it as the last plugin of the node's network. It repairs
    both when other programs change them
  - answers the plugin's questions about Pods, over a Unix socket
  - repairs Pods that started before the plugin, when their init container istio-validation fails
  - answers /ready and /metrics at --http-addr

When the agent ends, it removes the plugin only if its DaemonSet was removed, or does not select the
node any more. Otherwise Pods wait for the next agent, for example during an upgrade.`,
		Example: `  # Run the agent in a Pod
  moonsail cni agent --node node-1

  # Delete Pods that started before the plugin
  moonsail cni agent --node node-1 --repair delete`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	f.folders.addFlags(cmd)
	fs.StringVar(&f.network, "cni-conf-name", "", "`NAME` of the file in --cni-net-dir to add the plugin to (default: the first one, as container runtimes do)")
	fs.StringVar(&f.program, "plugin", "", "`FILE` of the plugin (default: "+cni.PluginName+" in this program's folder)")
	fs.StringVar(&f.api.Node, "node", "", "`NAME` of this node")
	fs.StringVar(&f.api.Namespace, "namespace", "istio-system", "`NAMESPACE` of the agent")
	fs.StringVar(&f.api.DaemonSet, "daemonset", "moonsail-cni-node", "`NAME` of the agent's DaemonSet")
	fs.StringVar(&f.agent.Socket, "socket", cni.Socket, "`FILE` of the socket for the plugin, with the same name on the node")
	fs.StringVar(&f.agent.HTTP, "http-addr", ":15014", "`ADDRESS` of /ready and /metrics")
	fs.StringSliceVar(&f.excluded, "exclude-namespaces", []string{"kube-system"}, "`NAMESPACES` whose Pods the plugin ignores")
	fs.StringVar(&f.agent.Repair.Way, "repair", node.RepairRules, "`WAY` to repair Pods that started before the plugin: "+strings.Join(node.Ways(), ", "))
	fs.StringVar(&f.agent.Repair.Label, "repair-label", "cni.istio.io/uninitialized=true", "label `KEY=VALUE` of --repair label")
	fs.StringVar(&f.agent.Repair.Proc, "proc", "/host/proc", "`DIR` where the node's /proc is mounted, for --repair rules")
	terminal.Offer(cmd, "repair", node.Ways()...)
	f.cluster.AddFlags(cmd)
	f.logging.AddFlags(cmd)
	terminal.EnvFlag(cmd, "node", "NODE_NAME")
	terminal.EnvFlag(cmd, "namespace", "POD_NAMESPACE")
	terminal.EnvFlags(cmd)
	return cmd
}

func (f *agentFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	log, err := f.logging.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	c, err := connect(&f.cluster)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := f.api.Connect(c); err != nil {
		return err
	}
	f.agent.Log, f.agent.Cluster = log, &f.api
	f.agent.Installer = &install.Installer{
		NetDir: f.folders.net, BinDir: f.folders.bin, Network: f.network, Program: f.program, Log: log,
		Entry: cni.Entry{
			Type: cni.PluginName, Socket: f.agent.Socket, ExcludeNamespaces: f.excluded,
			AgentPods: f.api.Namespace + "/" + f.api.DaemonSet + "-",
		},
	}
	f.agent.Prepare()
	f.api.Changed, f.api.Gone = f.agent.PodChanged, f.agent.PodGone
	f.api.Record = warnOnce(func(err error) { warnRequest(log, err) })
	return f.agent.Run(cmd.Context())
}

// check checks the flags, and finds the plugin.
func (f *agentFlags) check() error {
	switch {
	case f.api.Node == "":
		return terminal.UsageError{Err: errors.New("--node is missing: set it to the node's name, in a Pod by $NODE_NAME from spec.nodeName")}
	case !slices.Contains(node.Ways(), f.agent.Repair.Way):
		return terminal.UsageError{Err: fmt.Errorf("--repair %q: unknown way: use one of %s", f.agent.Repair.Way, strings.Join(node.Ways(), ", "))}
	case f.agent.Repair.Way == node.RepairLabel && !strings.Contains(f.agent.Repair.Label, "="):
		return terminal.UsageError{Err: fmt.Errorf("--repair-label %q: not a label: use KEY=VALUE", f.agent.Repair.Label)}
	}
	if f.program != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.program = filepath.Join(filepath.Dir(self), cni.PluginName)
	if _, err := os.Stat(f.program); errors.Is(err, fs.ErrNotExist) {
		return &terminal.UserError{What: "the CNI plugin is missing", Where: f.program, Next: "build cmd/moonsail-cni, and give its file with --plugin"}
	}
	return nil
}

// connect connects to the cluster of the flags.
func connect(flags *client.Cluster) (*kube.Client, error) {
	chosen := flags.Cluster
	chosen.UserAgent = "moonsail-cni/" + version.Get().Version
	c, err := kube.Connect(chosen)
	if err != nil {
		return nil, flags.Explain(err)
	}
	return c, nil
}

// warnRequest logs a request to the API server that failed and is repeated.
func warnRequest(log *slog.Logger, err error) {
	if kube.IsForbidden(err) {
		log.Warn("no permission to read objects, retrying: update the roles with 'helm upgrade' of the chart cni", "error", err)
		return
	}
	log.Warn("request to the API server failed, retrying", "error", err)
}

// warnOnce returns a function that calls warn with the first error of a series.
func warnOnce(warn func(error)) func(error) {
	var errs logonce.Errors
	return func(err error) {
		if errs.First(err) && !errors.Is(err, context.Canceled) {
			warn(err)
		}
	}
}

// newUninstallCommand returns the command `moonsail cni uninstall`.
func newUninstallCommand() *cobra.Command {
	var f folders
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the CNI plugin from a node",
		Long: `Remove the CNI plugin from a node: from the lists of plugins, then the program. The agent does this when
its DaemonSet is removed, or does not select the node any more. The command is for nodes that were
away at that time.`,
		Example: `  # On the node
  moonsail cni uninstall --cni-net-dir /etc/cni/net.d --cni-bin-dir /opt/cni/bin`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return (&install.Installer{NetDir: f.net, BinDir: f.bin}).Remove()
		},
	}
	f.addFlags(cmd)
	terminal.EnvFlags(cmd)
	return cmd
}
