package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/throughput"
)

// throughputFlags are the flags of "moonsail-lab throughput".
type throughputFlags struct {
	experimentFlags
	options throughput.Options
}

func (f *throughputFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "throughput",
		Short: "Measure throughput and latency with sidecars",
		Long: `Calls an application without sidecars, through the server's sidecar, and through both: in plain
text and with mutual TLS, with different numbers of worker threads, at the highest rate and at
fixed rates. Sidecars are real: 'moonsail agent' with Envoy, configured by 'moonsail serve'. The
last variant has the configuration that Istio generates by default, on the same Envoy. Targets
compare with it.

--bars measures only what the targets need, about 30 rounds in 20 minutes. Fixed rates are then an
open loop, memory is that of a workload that sees 10 of 1000 services, and targets compare with
Istio's defaults with and without an access log.

Exit status: 0 measured, 1 failed, 2 wrong flags, 130 interrupted (complete rounds are reported).`,
		Example: `  moonsail-lab throughput --quick
  moonsail-lab throughput --out report/
  moonsail-lab throughput --bars --out report/
  moonsail-lab throughput --concurrency 1,2 --connections 256 --rate 500`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.start(cmd) },
	}
	fs, d := cmd.Flags(), throughput.DefaultOptions()
	fs.IntSliceVar(&f.options.Concurrency, "concurrency", d.Concurrency, "worker threads of each Envoy; 0: one for each CPU; latencies and targets use the first number (with --quick: 2)")
	fs.IntVar(&f.options.Connections, "connections", d.Connections, "connections; each sends its next request when the last one is answered")
	fs.IntSliceVar(&f.options.Rates, "rate", d.Rates, "fixed `RATES` in requests per second (with --quick: 1000)")
	fs.BoolVar(&f.options.TargetsOnly, "bars", false, "measure only what the targets need, and that more often (default of --concurrency: 2, of --rate: 1000)")
	fs.BoolVar(&f.options.Defect, "defect", false, "plant a slow filter into the sidecars: the report must show it")
	_ = fs.MarkHidden("defect") // it exists
	f.addFlags(cmd)
	return cmd
}

func (f *throughputFlags) start(cmd *cobra.Command) error {
	o, err := f.build(cmd)
	if err != nil {
		return err
	}
	return f.run(cmd, throughput.New(o))
}

// build returns the options for the flags. --quick changes the defaults of flags that are not given.
func (f *throughputFlags) build(cmd *cobra.Command) (o throughput.Options, err error) {
	o = f.options
	if o.Quick = f.quick; f.quick || o.TargetsOnly {
		d := throughput.QuickOptions()
		if o.TargetsOnly {
			d = throughput.TargetsOptions()
		}
		if !cmd.Flags().Changed("concurrency") {
			o.Concurrency = d.Concurrency
		}
		if !cmd.Flags().Changed("rate") {
			o.Rates = d.Rates
		}
	}
	o.Programs, o.Envoy, err = f.programs(o.Check())
	return o, err
}
