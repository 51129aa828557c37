package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/scale"
	"github.com/moonsail/moonsail/internal/terminal"
)

// scaleFlags are the flags of "moonsail-lab scale".
type scaleFlags struct {
	experimentFlags
	options scale.Options
}

// scaleBudget is for the largest sizes.
const scaleBudget = 2 * time.Hour

func (f *scaleFlags) command() *cobra.Command {
	d := scale.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure a control plane with up to tens of thousands of proxies",
		Long: `Connects simulated sidecars to one control plane, changes routes, kills the control plane and
starts it again; then connects as many to each of two control planes and kills one. Measures the
last ACK of a route, the time to connect and to reconnect, and peak memory, and compares every
proxy with a fresh one at the end.

20,000 proxies need 20,400 open files in each process.

Exit status: 0 measured, 1 failed or something was lost, 2 wrong flags, 130 interrupted.`,
		Example: `  moonsail-lab scale --quick
  moonsail-lab scale --out report/
  moonsail-lab scale --services 500 --proxies 1000,10000 --pair 0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.start(cmd) },
	}
	fs := cmd.Flags()
	fs.IntVar(&f.options.Services, "services", d.Services, "services of the mesh")
	fs.IntVar(&f.options.Seen, "seen", d.Seen, "services that a proxy sees by its Sidecar resource; 0: all")
	fs.IntSliceVar(&f.options.Sizes, "proxies", d.Sizes, "numbers of proxies on one control plane, ascending")
	fs.IntVar(&f.options.Each, "pair", d.Each, "proxies on each of two control planes, of which one is killed; 0: not measured")
	fs.IntVar(&f.options.Changes, "changes", d.Changes, "measured changes of a route")
	fs.DurationVar(&f.options.Limit, "connect-limit", d.Limit, "time in which all proxies must connect")
	f.addFlags(cmd)
	_ = fs.MarkHidden("envoy") // it runs none; the only error is a flag that does not exist
	_ = fs.Set("budget", scaleBudget.String())
	fs.Lookup("budget").DefValue = scaleBudget.String()
	fs.Lookup("budget").Changed = false
	return cmd
}

func (f *scaleFlags) start(cmd *cobra.Command) (err error) {
	o := f.options
	if fs := cmd.Flags(); f.quick {
		for name, set := range map[string]func(){
			"services": func() { o.Services = 100 }, "proxies": func() { o.Sizes = []int{100, 300} },
			"pair": func() { o.Each = 100 }, "changes": func() { o.Changes = 2 },
		} {
			if !fs.Changed(name) {
				set()
			}
		}
	}
	if err := o.Check(); err != nil {
		return terminal.UsageError{Err: err}
	}
	if err := f.check(); err != nil {
		return err
	}
	if o.Programs, f.version, err = findPrograms(); err != nil {
		return err
	}
	return f.run(cmd, scale.New(o))
}
