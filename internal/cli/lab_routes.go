package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/envoy"
	"github.com/moonsail/moonsail/internal/lab/routes"
	"github.com/moonsail/moonsail/internal/version"
)

// routesFlags are those of "moonsail lab routes".
type routesFlags struct {
	options routes.Options
	envoy   string
	quick   bool
	output  Output
}

func (f *routesFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "Measure what changes of routes do to an Envoy with many virtual hosts",
		Long:  routesHelp(),
		Example: `  moonsail lab routes --quick
  moonsail lab routes --virtual-hosts 5000 --layout vhds,buckets-32 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addFlags(cmd)
	EnvFlags(cmd)
	return cmd
}

func routesHelp() string {
	var b strings.Builder
	b.WriteString(`Serves one listener with many virtual hosts to a real Envoy in several ways, sends
requests at a fixed rate, and changes one virtual host after the other: latencies of
requests with and without changes, in turn; time to the ACK, bytes and CPU of a change;
memory; and that routes are right in the end. Then, what each way to compute a scope's
key takes for a request.

Layouts:
`)
	for _, l := range routes.Layouts() {
		fmt.Fprintf(&b, "  %-12s %s\n", l.Name, l.About)
	}
	b.WriteString("\nExit status: 0 measured and every route right, 1 failed or a route was wrong, 2 wrong flags.")
	return b.String()
}

func (f *routesFlags) addFlags(cmd *cobra.Command) {
	fs, d := cmd.Flags(), routes.DefaultOptions()
	fs.BoolVar(&f.quick, "quick", false, "few and short phases: about a minute")
	fs.IntSliceVar(&f.options.Hosts, "virtual-hosts", d.Hosts, "`NUMBERS` of virtual hosts to measure with")
	fs.StringSliceVar(&f.options.Layouts, "layout", nil, "layouts to measure, by `NAME` (default: all)")
	fs.IntVar(&f.options.Workers, "workers", d.Workers, "worker `THREADS` of Envoy")
	fs.IntVar(&f.options.Rate, "rate", d.Rate, "requests a second")
	fs.IntVar(&f.options.Changes, "changes", d.Changes, "changes a second, at most: each waits for the last one's ACK")
	fs.IntVar(&f.options.Rounds, "rounds", d.Rounds, "phases without and with changes")
	fs.DurationVar(&f.options.Phase, "phase", d.Phase, "how long a phase is")
	fs.StringVar(&f.envoy, "envoy", "", "`PATH` of the Envoy to run")
	f.output.AddFlag(cmd)
}

func (f *routesFlags) run(cmd *cobra.Command) error {
	o, err := f.build(cmd)
	if err != nil {
		return err
	}
	progress := StartProgress(cmd.ErrOrStderr(), "starting")
	o.Progress = progress.Update
	report, err := routes.Run(cmd.Context(), o)
	progress.Done()
	if err != nil {
		return err
	}
	if err := f.output.Print(cmd.OutOrStdout(), report, func(w io.Writer) error { return printRoutes(w, report) }); err != nil {
		return err
	}
	for _, r := range report.Results {
		if r.Wrong > 0 {
			return &UserError{What: fmt.Sprintf("layout %s: %d hosts were routed wrongly in the end", r.Layout, r.Wrong),
				Next: "look for refused resources in Envoy's log"}
		}
	}
	return nil
}

// build makes the options of flags: --quick changes the defaults of those that are not given.
func (f *routesFlags) build(cmd *cobra.Command) (routes.Options, error) {
	o, d := f.options, routes.DefaultOptions()
	if f.quick {
		d = routes.QuickOptions()
		given := cmd.Flags().Changed
		if !given("virtual-hosts") {
			o.Hosts = d.Hosts
		}
		if !given("rounds") {
			o.Rounds = d.Rounds
		}
		if !given("phase") {
			o.Phase = d.Phase
		}
	}
	o.Conns, o.Keys, o.Quick, o.Version = d.Conns, d.Keys, d.Quick, version.Get().String()
	if err := o.Check(); err != nil {
		return o, usageError{err}
	}
	binary, err := envoy.Find(f.envoy)
	o.Envoy = binary.Path
	return o, err
}

// printRoutes prints a report for people.
func printRoutes(w io.Writer, r *routes.Report) error {
	s := StyleFor(w)
	fmt.Fprintf(w, "Envoy %s with %d workers, %d CPUs, %d requests/s, up to %d changes/s; times in ms unless they say us; added: to layout rds\n\n",
		r.Envoy, r.Workers, r.CPUs, r.Rate, r.Changes)
	t := NewTable("HOSTS", "LAYOUT", "QUIET p50/p99", "CHANGING p50/p99", "p99 RATIO", "ACK p50/p99", "CHANGES/s", "BYTES", "MAIN CPU", "WORKER CPU", "us/REQUEST", "ADDED us", "ADDED p50 us", "READY", "HEAP MB", "")
	for i := range r.Results {
		t.Row(routesRow(s, &r.Results[i])...)
	}
	if err := t.Write(w); err != nil || len(r.Keys) == 0 {
		return err
	}
	fmt.Fprintf(w, "\nA scope's key, for each request (direct answers, 4 connections, as fast as they go)\n\n")
	keys := NewTable("KEY", "us/REQUEST", "ADDED us", "p50 us", "")
	for _, k := range r.Keys {
		keys.Row(k.Name, fmt.Sprintf("%.2f", k.CPU), fmt.Sprintf("%+.2f", k.Added), fmt.Sprintf("%.0f", k.P50), k.About)
	}
	return keys.Write(w)
}

func routesRow(s Style, x *routes.Result) []string {
	verdict := s.Bad("missed")
	switch {
	case x.Wrong > 0:
		verdict = s.Bad(fmt.Sprintf("%d wrong", x.Wrong))
	case x.Noisy():
		verdict = "noisy"
	case x.Holds():
		verdict = s.Good("holds")
	}
	pair := func(a, b float64) string { return fmt.Sprintf("%.2f/%.2f", a, b) }
	return []string{
		fmt.Sprint(x.Hosts), x.Layout, pair(x.Quiet.P50, x.Quiet.P99), pair(x.Changing.P50, x.Changing.P99), fmt.Sprintf("%.2fx", x.Ratio),
		pair(x.ACK.P50, x.ACK.P99), fmt.Sprintf("%.1f", x.Rate), fmt.Sprintf("%.0f", x.Bytes), fmt.Sprintf("%.2f", x.MainCPU), fmt.Sprintf("%.2f", x.WorkerCPU),
		fmt.Sprintf("%.1f", x.RequestCPU), fmt.Sprintf("%+.1f", x.AddedCPU), fmt.Sprintf("%+.0f", x.AddedLatency),
		fmt.Sprintf("%.0f", x.Ready), fmt.Sprint(x.Allocated >> 20), verdict,
	}
}
