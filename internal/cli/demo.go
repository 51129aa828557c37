package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/demo"
	"github.com/moonsail/moonsail/internal/terminal"
)

// NewDemoCommand is "moonsail demo".
func NewDemoCommand() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole mesh on this machine, and show what it does",
		Long: `Runs a small shop on loopback addresses: five services, one of them in three versions. Each
workload is a process with a real Envoy sidecar. Sidecars get certificates from the control
plane, and use mutual TLS for all calls. The demo needs neither root nor a cluster. Under steady traffic it shifts a canary, adds and removes an
endpoint, injects faults, applies a broken VirtualService, and kills the control plane;
after each change it shows where the time went until the last proxy had it.

Exit status 0 means that every step succeeded and no request failed, except those that
fault injection aborted. Ctrl-C ends all processes.`,
		Example: `  moonsail demo                        # about a minute
  moonsail demo --keep --dir shop/     # go on afterwards, to look around and to edit the YAML`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			style := terminal.StyleFor(cmd.OutOrStdout())
			o.Binary, o.Out = binary, cmd.OutOrStdout()
			o.Style = demo.Style{Good: style.Good, Warn: style.Warn, Bad: style.Bad, Dim: style.Dim, Bold: style.Bold}
			return demo.Run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Keep, "keep", false, "leave it running after the last step, until Ctrl-C")
	fs.StringVar(&o.Dir, "dir", "", "`DIR` for YAML and logs (default: a temporary one, removed after success)")
	fs.IntVar(&o.Workloads, "workloads", demo.DefaultWorkloads, "how many workloads the shop has")
	fs.IntVar(&o.Rate, "rate", demo.DefaultRate, "requests a second for the front page; each makes about six more")
	fs.StringVar(&o.Envoy, "envoy", "", "Envoy's `PATH` (default: see 'moonsail envoy which'; fetched where it is missing)")
	cmd.AddCommand(newDemoAppCommand())
	return cmd
}

// newDemoAppCommand is what the demo starts for each application.
func newDemoAppCommand() *cobra.Command {
	var a demo.App
	cmd := &cobra.Command{
		Use:    "app",
		Short:  "Run one of the shop's applications",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.Log = cmd.ErrOrStderr()
			return a.Run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&a.Workload.Name, "name", "", "the instance's name")
	fs.StringVar(&a.Workload.App, "service", "", "the service that it is an instance of")
	fs.StringVar(&a.Workload.Version, "version", "v1", "its version")
	fs.StringVar(&a.Listen, "listen", "", "`ADDRESS` to serve at")
	fs.StringVar(&a.Sidecar, "sidecar", "", "`ADDRESS` of its sidecar's egress listener")
	return cmd
}
