// Package cli is the command line of moonsail-lab, with one file for each experiment. Hidden commands are the
// processes that experiments start: load, application and baseline.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// Execute runs the command that the process was started with and returns the exit status.
func Execute() int { return terminal.Execute(NewRootCommand()) }

// NewRootCommand returns the command tree.
func NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "moonsail-lab",
		Short: "Run experiments and report what they measure",
		Long: `Runs experiments on the moonsail binary next to this one, or else on the first one in PATH.
Each experiment starts the processes that it needs and writes its report to --out.`,
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
		(&balanceFlags{}).command(), (&concurrencyFlags{}).command(), (&choicesFlags{}).command(), (&scaleFlags{}).command(), (&chaosFlags{}).command(), (&allFlags{}).command(),
		newBaselineCommand(), newLoadCommand(), newBackendCommand())
	return root
}
