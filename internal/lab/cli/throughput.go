package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/throughput"
)

// throughputFlags are those of "moonsail-lab throughput".
type throughputFlags struct {
	experimentFlags
	options throughput.Options
}

func (f *throughputFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "throughput",
		Short: "Measure what sidecars take of throughput and latency",
		Long: `Calls an application without sidecars, through the server's, and through both: in plain text
and with mutual TLS, with different numbers of worker threads, as fast as answers come and at
fixed rates. Sidecars are real: 'moonsail agent' with Envoy, configured by 'moonsail serve'.
The last variant is what Istio generates by default, on the same Envoy; bars are held against it.

--bars measures what the bars are about, and no more: some 30 rounds in 20 minutes. Fixed rates are
an open loop, memory is that of a workload that sees 10 of 1000 services, and bars are held against
Istio's defaults with an access log and without.

Exit status: 0 measured, 1 failed or interrupted (complete rounds are reported), 2 wrong flags.`,
		Example: `  moonsail-lab throughput --quick
  moonsail-lab throughput --out report/
  moonsail-lab throughput --bars --out report/
  moonsail-lab throughput --concurrency 1,2 --connections 256 --rate 500`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.start(cmd) },
	}
	fs, d := cmd.Flags(), throughput.DefaultOptions()
	fs.IntSliceVar(&f.options.Concurrency, "concurrency", d.Concurrency, "worker threads of each Envoy, 0: one a core; latencies and bars are about the first (with --quick: 2)")
	fs.IntVar(&f.options.Connections, "connections", d.Connections, "connections that send as fast as answers come")
	fs.IntSliceVar(&f.options.Rates, "rate", d.Rates, "fixed `RATES`, requests a second (with --quick: 1000)")
	fs.BoolVar(&f.options.Bars, "bars", false, "only what the bars need, and so more often (default of --concurrency: 2, of --rate: 1000)")
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

// build makes the options of flags: --quick changes the defaults of those that are not given.
func (f *throughputFlags) build(cmd *cobra.Command) (o throughput.Options, err error) {
	o = f.options
	if o.Quick = f.quick; f.quick || o.Bars {
		d := throughput.QuickOptions()
		if o.Bars {
			d = throughput.BarsOptions()
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
