package configure

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/terminal"
)

// NewValidateCommand returns `moonsail validate`, which is analyze with the arguments of `istioctl validate`.
func NewValidateCommand() *cobra.Command {
	var (
		f     analyzeFlags
		files []string
	)
	cmd := &cobra.Command{
		Use:     "validate -f FILE",
		Aliases: []string{"v"},
		Hidden:  true,
		Short:   "Check files for errors, with the arguments of istioctl",
		Long:    "Report the errors that 'moonsail analyze' finds in files. Nothing is read from a cluster.",
		Example: `  # Check a file
  moonsail validate -f route.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if files = append(files, args...); len(files) == 0 {
				return terminal.UsageError{Err: errors.New("--filename is missing: use 'moonsail validate -f FILE'")}
			}
			return f.run(cmd, files)
		},
	}
	f.addFlags(cmd)
	f.level = string(problem.SeverityError)
	cmd.Flags().Lookup("level").DefValue = f.level
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`FILE` or directory to check; - is standard input; may be repeated")
	return cmd
}
