package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/routes"
	"github.com/moonsail/moonsail/internal/terminal"
)

// routesFlags are the flags of "moonsail-lab routes".
type routesFlags struct {
	experimentFlags
	options routes.Options
}

func (f *routesFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "Measure the effect of route changes on an Envoy with many virtual hosts",
		Long:  routesHelp(),
		Example: `  moonsail-lab routes --quick
  moonsail-lab routes --out report/
  moonsail-lab routes --virtual-hosts 5000 --layout vhds,buckets-32 -o json`,
		Args: cobra.NoArgs,
		RunE: f.measure,
	}
	fs, d := cmd.Flags(), routes.DefaultOptions()
	fs.IntSliceVar(&f.options.Hosts, "virtual-hosts", d.Hosts, "`NUMBERS` of virtual hosts to measure with (with --quick: 5000)")
	fs.StringSliceVar(&f.options.Layouts, "layout", nil, "layouts to measure, by `NAME` (default: all; with --quick: "+strings.Join(routes.QuickOptions().Layouts, ", ")+")")
	fs.IntVar(&f.options.Workers, "workers", d.Workers, "worker `THREADS` of Envoy")
	fs.IntVar(&f.options.Rate, "rate", d.Rate, "requests per second")
	fs.IntVar(&f.options.Changes, "changes", d.Changes, "changes per second at most; each waits for the ACK of the one before")
	fs.DurationVar(&f.options.Phase, "phase", d.Phase, "duration of each half of a round, without and with changes (with --quick: 700ms)")
	f.addFlags(cmd)
	return cmd
}

func routesHelp() string {
	var b strings.Builder
	b.WriteString(`Serves one listener with many virtual hosts to a real Envoy in several layouts, sends requests at
a fixed rate, and changes one virtual host after the other. It measures latencies of requests with
and without changes, in turn; time to the ACK, bytes and CPU time of a change; and memory. At the
end it checks all routes. It also measures the cost per request of each way to compute a scope key.

Layouts:
`)
	for _, l := range routes.Layouts() {
		fmt.Fprintf(&b, "  %-14s %s\n", l.Name, l.About)
	}
	b.WriteString("\nExit status: 0 measured and every route correct, 1 failed or a route was wrong, 2 wrong flags, 130 interrupted.")
	return b.String()
}

func (f *routesFlags) measure(cmd *cobra.Command, _ []string) error {
	o, err := f.build(cmd)
	if err != nil {
		return err
	}
	report, err := f.report(cmd, routes.New(o))
	if report == nil || err != nil {
		return err
	}
	if n := routes.Wrong(report); n > 0 {
		return &terminal.UserError{What: fmt.Sprintf("%d hosts had wrong routes", n), Next: "the details of report.html name the layout (--out DIR)"}
	}
	return nil
}

// build returns the options for the flags. --quick changes the defaults of flags that are not given.
func (f *routesFlags) build(cmd *cobra.Command) (o routes.Options, err error) {
	o, d := f.options, routes.DefaultOptions()
	if given := cmd.Flags().Changed; f.quick {
		d = routes.QuickOptions()
		if !given("virtual-hosts") {
			o.Hosts = d.Hosts
		}
		if !given("layout") {
			o.Layouts = d.Layouts
		}
		if !given("phase") {
			o.Phase = d.Phase
		}
	}
	o.Conns, o.Keys, o.Rounds = d.Conns, d.Keys, d.Rounds
	programs, path, err := f.programs(o.Check())
	o.Moonsail, o.Envoy = programs.Moonsail, path
	return o, err
}
