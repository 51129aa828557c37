// Package cli is the command line of moonsail-lab: a file an experiment. The hidden commands are the load, the
// application and the servers that experiments run as processes of the lab.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// Execute runs the command that the process was started with and returns the exit status.
func Execute() int { return terminal.Execute(NewRootCommand()) }

// NewRootCommand is the command tree.
func NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "moonsail-lab",
		Short: "Run experiments and report what they measure",
		Long: `Runs experiments on the moonsail binary next to this one, or, without one there, on the
first in PATH. Each experiment starts what it needs and writes its report to --out.`,
		Example: `  moonsail-lab propagation --quick
  moonsail-lab routes --quick
  moonsail-lab throughput --quick --out report/
  moonsail-lab all --quick --out dist/lab`,
		Version: version.Get().String(),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	terminal.SetUp(root)
	root.AddCommand((&propagationFlags{}).command(), (&routesFlags{}).command(), (&throughputFlags{}).command(), (&filtersFlags{}).command(),
		(&balanceFlags{}).command(), (&concurrencyFlags{}).command(), (&choicesFlags{}).command(), (&allFlags{}).command(),
		newFloorCommand(), newLoadCommand(), newBackendCommand())
	return root
}
