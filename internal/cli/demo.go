package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/demo"
	"github.com/moonsail/moonsail/internal/terminal"
)

func newDemoCommand() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a mesh on this machine and show what it does",
		Long: `Run a small shop on loopback addresses: five services, one of them in three versions. Each workload
is a process with its own Envoy sidecar, and sidecars call each other with mutual TLS. The demo
needs neither root nor a cluster.

Under steady traffic the demo shifts a canary, adds and removes an endpoint, injects faults, applies
a broken VirtualService, and kills the control plane. For each change it shows the time of each
stage until the last proxy has it.

Exit status: 0 every step succeeded and no request failed, except those that fault injection
aborted; 1 otherwise; 2 wrong usage; 130 interrupted. Ctrl-C ends all processes.`,
		Example: `  # Run the demo, for half a minute
  moonsail demo

  # Leave the mesh running, to inspect it and to edit its YAML
  moonsail demo --keep --dir shop/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(&o); err != nil {
				return err
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			o.Binary, o.Out = binary, cmd.OutOrStdout()
			return client.NoEnvoy(demo.Run(cmd.Context(), o))
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Keep, "keep", false, "leave the mesh running after the last step, until Ctrl-C")
	fs.StringVar(&o.Dir, "dir", "", "`DIR` for YAML and logs (default: a temporary one, removed after success)")
	fs.IntVar(&o.Workloads, "workloads", demo.DefaultWorkloads, "number of workloads")
	fs.IntVar(&o.Rate, "rate", demo.DefaultRate, "requests per second to the front page; each causes about six more")
	fs.StringVar(&o.Envoy, "envoy", "", "`PATH` of Envoy (default: see 'moonsail envoy which'; fetched if missing)")
	cmd.AddCommand(newDemoAppCommand())
	return cmd
}

// checkDemo refuses zeros, which mean the default in demo.Options.
func checkDemo(o *demo.Options) error {
	switch {
	case o.Workloads == 0:
		return terminal.UsageError{Err: fmt.Errorf("--workloads 0: out of range: use %d to %d", demo.MinWorkloads, demo.MaxWorkloads)}
	case o.Rate == 0:
		return terminal.UsageError{Err: fmt.Errorf("--rate 0: out of range: use 1 to %d", demo.MaxRate)}
	}
	return nil
}

// newDemoAppCommand returns the hidden command that the demo runs for each application.
func newDemoAppCommand() *cobra.Command {
	var a demo.App
	cmd := &cobra.Command{
		Use:    "app",
		Short:  "Run an application of the demo's shop",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.Log = cmd.ErrOrStderr()
			return a.Run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&a.Workload.Name, "name", "", "`NAME` of the instance")
	fs.StringVar(&a.Workload.App, "service", "", "`SERVICE` of the instance")
	fs.StringVar(&a.Workload.Version, "version", "v1", "`VERSION` of the instance")
	fs.StringVar(&a.Listen, "listen", "", "`ADDR` to listen on")
	fs.StringVar(&a.Sidecar, "sidecar", "", "`ADDR` of its sidecar's egress listener")
	return cmd
}
