package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/concurrency"
)

// concurrencyFlags are the flags of "moonsail-lab concurrency".
type concurrencyFlags struct {
	experimentFlags
	workers, loads []int
	connections    int
}

func (f *concurrencyFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "concurrency",
		Short: "Measure the CPU time of Envoy's threads as the load grows, and the benefit of another worker",
		Long: `Sends requests to a server's sidecar at rising fixed rates, whether or not earlier requests were
answered. It measures the CPU time of each of Envoy's threads, latencies from the time at which a
request was due, and the highest rate, each with one worker thread, two, and more. The report
ends with a recommendation and its reasons.

Exit status: 0 measured, 1 failed, 2 wrong flags.`,
		Example: `  moonsail-lab concurrency --quick
  moonsail-lab concurrency --out report/
  moonsail-lab concurrency --workers 1,2,4,8 --loads 50,100,200,300`,
		Args: cobra.NoArgs,
		RunE: f.measure,
	}
	d := concurrency.DefaultOptions()
	fs := cmd.Flags()
	fs.IntSliceVar(&f.workers, "workers", d.Workers, "`NUMBERS` of worker threads, ascending from 1 (with --quick: 1,2)")
	fs.IntSliceVar(&f.loads, "loads", d.Loads, "`PERCENTS` of the rate that one worker can answer, ascending (with --quick: 40,80,120)")
	fs.IntVar(&f.connections, "connections", d.Connections, "connections that carry the requests")
	f.addFlags(cmd)
	return cmd
}

func (f *concurrencyFlags) measure(cmd *cobra.Command, _ []string) error {
	o, err := f.build(cmd)
	if err != nil {
		return err
	}
	return f.run(cmd, concurrency.New(o))
}

func (f *concurrencyFlags) build(cmd *cobra.Command) (o concurrency.Options, err error) {
	given := cmd.Flags().Changed
	if o = concurrency.DefaultOptions(); f.quick {
		o = concurrency.QuickOptions()
	}
	if !f.quick || given("workers") {
		o.Workers = f.workers
	}
	if !f.quick || given("loads") {
		o.Loads = f.loads
	}
	o.Connections = f.connections
	o.Pair.Programs, o.Pair.Envoy, err = f.programs(o.Check())
	return o, err
}
