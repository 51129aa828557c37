package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/filters"
)

// filtersFlags are the flags of "moonsail-lab filters".
type filtersFlags struct {
	experimentFlags
	options filters.Options
}

func (f *filtersFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filters",
		Short: "Measure the cost of filters, metrics and access logs in sidecars",
		Long: `Calls an application without sidecars, and through two sidecars with mutual TLS. The sidecars
differ: no filter, request metrics by Envoy's own logger, the same metrics by a WASM filter, a Lua
filter, access logs as text and as JSON. The Go toolchain in PATH builds the WASM filter; without
it, this variant is marked as not measured.

Exit status: 0 measured, 1 failed, 2 wrong flags, 130 interrupted (complete rounds are reported).`,
		Example: `  moonsail-lab filters --quick
  moonsail-lab filters --out report/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.start(cmd) },
	}
	addTerms(cmd.Flags(), &f.options.Terms, filters.DefaultOptions().Terms)
	f.addFlags(cmd)
	return cmd
}

func (f *filtersFlags) start(cmd *cobra.Command) (err error) {
	o := f.options
	o.Quick = f.quick
	if o.Programs, o.Envoy, err = f.programs(o.Check()); err != nil {
		return err
	}
	return f.run(cmd, filters.New(o))
}
