package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// experimentFlags are the flags of all experiments that package experiment runs.
type experimentFlags struct {
	quick  bool
	rounds int
	budget time.Duration
	envoy  string
	out    string
	output terminal.Output

	version string // of moonsail; set by programs
}

// Time limits of an experiment.
const (
	leastBudget = 30 * time.Second
	quickBudget = 2 * time.Minute
	fullBudget  = 20 * time.Minute
)

func (f *experimentFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.quick, "quick", false, "few and short measurements: at most two minutes")
	fs.IntVar(&f.rounds, "rounds", 0, "measurements of each variant, in turn with the others (default: depends on the experiment)")
	fs.DurationVar(&f.budget, "budget", fullBudget, "time limit of the experiment; rounds that do not fit are left out (with --quick: 2m)")
	fs.StringVar(&f.envoy, "envoy", "", "`PATH` of the Envoy to run")
	fs.StringVar(&f.out, "out", "", "`DIR` for report.json and report.html")
	f.output.AddFlag(cmd)
	_ = cmd.MarkFlagDirname("out") // the only error is a flag that does not exist
	terminal.EnvFlag(cmd, "envoy", envoy.PathVariable)
	terminal.EnvFlags(cmd)
}

// addTerms adds the flags of experiments whose pairs differ in one thing each.
func addTerms(fs *pflag.FlagSet, t *pair.Terms, d pair.Terms) {
	fs.IntVar(&t.Concurrency, "concurrency", d.Concurrency, "worker threads of each Envoy; 0: one for each CPU")
	fs.IntVar(&t.Connections, "connections", d.Connections, "connections; each sends its next request when the last one is answered")
	fs.IntVar(&t.Rate, "rate", d.Rate, "requests per second while latencies are measured")
}

// check validates the flags.
func (f *experimentFlags) check() error {
	if f.rounds < 0 || f.budget < leastBudget {
		return terminal.UsageError{Err: fmt.Errorf("--rounds must not be negative, and --budget must be at least %s", leastBudget)}
	}
	return nil
}

// programs returns the programs and the path of Envoy that an experiment runs, after the flags have been checked.
// Options is the result of the experiment's own check.
func (f *experimentFlags) programs(options error) (p child.Programs, path string, err error) {
	if options != nil {
		return p, "", terminal.UsageError{Err: options}
	}
	if err := f.check(); err != nil {
		return p, "", err
	}
	binary, err := envoy.Find(f.envoy)
	if err != nil {
		return p, "", err
	}
	p, f.version, err = findPrograms()
	return p, binary.Path, err
}

// findPrograms returns the programs that experiments run, and the version of moonsail among them.
func findPrograms() (p child.Programs, measured string, err error) {
	if p, err = child.FindPrograms(); err == nil {
		var info version.Info
		info, err = version.Of(p.Moonsail[0])
		measured = info.String()
	}
	if err != nil {
		err = &terminal.UserError{What: "cannot find the moonsail binary to measure", Err: err, Next: "run 'make build', or put moonsail next to moonsail-lab"}
	}
	return p, measured, err
}

// run runs an experiment, saves its report and prints it, also if the experiment ended early.
func (f *experimentFlags) run(cmd *cobra.Command, e *experiment.Experiment) error {
	_, err := f.report(cmd, e)
	return err
}

// report does what run does and returns the report, if there is one.
func (f *experimentFlags) report(cmd *cobra.Command, e *experiment.Experiment) (*experiment.Report, error) {
	if e.Quick, e.Version, e.Budget = f.quick, f.version, f.budget; f.quick && !cmd.Flags().Changed("budget") {
		e.Budget = quickBudget
	}
	if f.rounds > 0 {
		e.Rounds = f.rounds
	}
	if err := canWriteInto(f.out); err != nil {
		return nil, err
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "starting")
	e.Progress = progress.Update
	report, failed := experiment.Run(cmd.Context(), e)
	progress.Done()
	if report == nil {
		return nil, failed
	}
	return report, errors.Join(failed, f.save(cmd, report),
		f.output.Print(cmd.OutOrStdout(), report, func(w io.Writer) error { return printExperiment(w, report) }))
}

func (f *experimentFlags) save(cmd *cobra.Command, r *experiment.Report) error {
	if f.out == "" {
		return nil
	}
	if err := r.Save(f.out); err != nil {
		return &terminal.UserError{What: "cannot write the report", Where: "--out " + f.out, Err: err, Next: "name a directory that you can write to"}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s and %s\n", filepath.Join(f.out, experiment.HTMLFile), experiment.JSONFile)
	return nil
}

// printExperiment prints a report as text.
func printExperiment(w io.Writer, r *experiment.Report) error {
	s := terminal.StyleFor(w)
	fmt.Fprintf(w, "%s\n%s\n", r.Title, s.Dim(r.Line()))
	for _, fact := range r.Facts {
		fmt.Fprintln(w, s.Dim(fact))
	}
	if r.Machine.Busy() {
		fmt.Fprintln(w, s.Bad("the machine was busy when the run began: trust the ratios, not the numbers"))
	}
	if r.Stopped != "" {
		fmt.Fprintln(w, s.Bad("ended early: "+r.Stopped))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
	fmt.Fprintln(w)
	for _, part := range []func(io.Writer, terminal.Style, *experiment.Report) error{printVariants, printComparisons, printTargets} {
		if err := part(w, s, r); err != nil {
			return err
		}
	}
	return nil
}

// printVariants prints medians, with half the interquartile range.
func printVariants(w io.Writer, _ terminal.Style, r *experiment.Report) error {
	head, shown := []string{"VARIANT"}, []experiment.Metric{}
	for _, m := range r.Metrics {
		if !m.Detail {
			head, shown = append(head, m.Title), append(shown, m)
		}
	}
	t := terminal.NewTable(head...)
	for _, v := range r.Variants {
		row := []string{v.Name}
		for _, m := range shown {
			row = append(row, v.Cell(m.Name))
		}
		if v.Skipped != "" {
			row = []string{v.Name, "not measured: " + v.Skipped}
		}
		t.Row(row...)
	}
	return t.Write(w)
}

func printComparisons(w io.Writer, s terminal.Style, r *experiment.Report) error {
	if r.Rounds == 0 || len(r.Comparisons) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := terminal.NewTable("VARIANT", "TO", "METRIC", "MEDIAN", "INTERVAL", "")
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if c.N == 0 || r.Metric(c.Metric).Detail {
			continue
		}
		verdict := s.Dim(c.Verdict)
		switch r.Good(c) {
		case 1:
			verdict = s.Good(c.Verdict)
		case -1:
			verdict = s.Bad(c.Verdict)
		}
		t.Row(c.Variant, c.Base, r.Metric(c.Metric).Title, r.Value(c, c.Median), r.Range(c), verdict)
	}
	return t.Write(w)
}

func printTargets(w io.Writer, s terminal.Style, r *experiment.Report) error {
	if len(r.Targets) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := terminal.NewTable("TARGET", "MEASURED", "INTERVAL", "LIMIT", "")
	for i := range r.Targets {
		b := &r.Targets[i]
		verdict := s.Bad("missed")
		switch {
		case b.Verdict == experiment.NotMeasured:
			verdict = s.Bad(b.Verdict)
		case b.Met:
			verdict = s.Good("met")
		}
		if b.Verdict == experiment.WithinNoise || b.Verdict == experiment.TooFew {
			verdict += " (" + b.Verdict + ")"
		}
		t.Row(b.What, r.Measured(b), r.TargetRange(b), r.Want(b), verdict)
	}
	return t.Write(w)
}

// canWriteInto checks before a long measurement that its reports can be written. An empty dir means that none are written.
func canWriteInto(dir string) error {
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o755) //nolint:gosec // reports are for everybody
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".probe-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		return &terminal.UserError{What: "cannot write reports", Where: "--out " + dir, Err: err, Next: "name a directory that you can write to"}
	}
	return nil
}
