package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/agent"
	"github.com/moonsail/moonsail/internal/cli/cni"
	"github.com/moonsail/moonsail/internal/cli/configure"
	"github.com/moonsail/moonsail/internal/cli/inspect"
	"github.com/moonsail/moonsail/internal/cli/install"
	"github.com/moonsail/moonsail/internal/cli/istioctl"
	"github.com/moonsail/moonsail/internal/cli/proxyconfig"
	"github.com/moonsail/moonsail/internal/cli/serve"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// Execute runs the command in the arguments of the process and returns the exit status.
func Execute() int {
	root := NewRootCommand()
	asPlugin(root, os.Args)
	return terminal.Execute(root)
}

// NewRootCommand returns the command tree.
func NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "moonsail",
		Short: "Run and inspect a service mesh",
		Long: `Moonsail is a service mesh: a control plane that turns Kubernetes and Istio resources into
configuration of Envoy, an agent that runs Envoy as a sidecar or gateway, and commands that inspect
a running mesh.`,
		Example: `  # Run a mesh on this machine, for half a minute
  moonsail demo

  # Run a control plane on a directory of YAML
  moonsail serve --config DIR --xds-plaintext-addr 127.0.0.1:15010

  # Check a directory of YAML
  moonsail analyze DIR

  # List changes with the time of each stage
  moonsail changes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	terminal.SetUp(root)
	root.Version = version.Get().String()
	root.SetVersionTemplate("moonsail {{.Version}}\n")
	root.AddCommand(serve.NewCommand(), agent.NewCommand(), cni.NewCommand(), proxyconfig.NewCommand(), newDemoCommand(), inspect.NewVersionCommand())
	root.AddCommand(configure.Commands()...)
	root.AddCommand(inspect.Commands()...)
	root.AddCommand(install.Commands()...)
	root.AddCommand(istioctl.Commands()...)
	addGroups(root)
	return root
}

// groups are the sections of the root's help, in their order. Commands that none names are listed at the end.
var groups = []struct {
	id, title string
	commands  []string
}{
	{"start", "Get started", []string{"demo", "precheck", "install", "dashboard"}},
	{"inspect", "Inspect", []string{"proxies", "proxy-config", "why", "explain", "changes", "stale", "dependencies", "doctor", "profile", "bug-report"}},
	{"configure", "Configure", []string{"analyze", "diff", "compare", "inject", "wait"}},
	{"operate", "Operate", []string{"upgrade", "uninstall", "tag", "manifest", "serve", "agent", "cni", "envoy"}},
}

func addGroups(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, name := range g.commands {
			for _, cmd := range root.Commands() {
				if cmd.Name() == name {
					cmd.GroupID = g.id
				}
			}
		}
	}
}
