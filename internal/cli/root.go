// Package cli holds the commands of moonsail, one file or a few per command. NewRootCommand lists them.
// What it shares with the command line of moonsail-lab is in package terminal.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
)

// Execute runs the command that the process was started with and returns the exit status.
func Execute() int { return terminal.Execute(NewRootCommand()) }

// NewRootCommand is the command tree.
func NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "moonsail",
		Short: "A service mesh in which every millisecond is accounted for",
		Long: `Moonsail is a service mesh: a control plane that turns Kubernetes and Istio
resources into Envoy configuration, and an agent that runs Envoy sidecars.`,
		Example: `  moonsail demo                     # a whole mesh on this machine, in about a minute
  moonsail serve --config DIR       # a control plane on a directory of YAML
  moonsail analyze DIR              # what is wrong in a directory of YAML
  moonsail changes                  # where the time of each change went`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	terminal.SetUp(root)
	for _, n := range commands {
		root.AddCommand(n())
	}
	return root
}
