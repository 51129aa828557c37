package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// NewVersionCommand is "moonsail version".
func NewVersionCommand() *cobra.Command {
	var out terminal.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Example: `  moonsail version
  moonsail version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version.Get()
			return out.Print(cmd.OutOrStdout(), v, func(w io.Writer) error {
				_, err := io.WriteString(w, "moonsail "+v.String()+"\n")
				return err
			})
		},
	}
	out.AddFlag(cmd)
	return cmd
}
