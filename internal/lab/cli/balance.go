package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/balance"
)

// balanceFlags are the flags of "moonsail-lab balance".
type balanceFlags struct {
	experimentFlags
	workers     int
	connections []int
}

func (f *balanceFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "balance",
		Short: "Measure how Envoy's worker threads share connections",
		Long: `Opens connections to a server's sidecar over HTTP/1.1 and HTTP/2, sends requests on all of them,
and reads from Envoy how many connections each worker thread has. Listeners compared: the one
that the control plane generates (exact_balance); without exact_balance, where the kernel chooses
one of the workers' sockets; and with one socket for all workers. The result is the ratio of the
busiest worker's connections to the mean, with throughput and latency.

Exit status: 0 measured, whether or not targets are met, 1 failed, 2 wrong flags.`,
		Example: `  moonsail-lab balance --quick
  moonsail-lab balance --out report/
  moonsail-lab balance --workers 2 --connections 64,128`,
		Args: cobra.NoArgs,
		RunE: f.measure,
	}
	d := balance.DefaultOptions()
	cmd.Flags().IntVar(&f.workers, "workers", d.Workers, "worker `THREADS` of each Envoy")
	cmd.Flags().IntSliceVar(&f.connections, "connections", d.Connections, "`NUMBERS` of connections, ascending (with --quick: 8,64,256)")
	f.addFlags(cmd)
	return cmd
}

func (f *balanceFlags) measure(cmd *cobra.Command, _ []string) error {
	o, err := f.build(cmd)
	if err != nil {
		return err
	}
	return f.run(cmd, balance.New(o))
}

func (f *balanceFlags) build(cmd *cobra.Command) (o balance.Options, err error) {
	if o = balance.DefaultOptions(); f.quick {
		o = balance.QuickOptions()
	}
	if o.Workers = f.workers; cmd.Flags().Changed("connections") || !f.quick {
		o.Connections = f.connections
	}
	o.Pair.Programs, o.Pair.Envoy, err = f.programs(o.Check())
	return o, err
}
