package cli

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/chaos"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// chaosFlags are the flags of "moonsail-lab chaos".
type chaosFlags struct {
	options   chaos.Options
	source    string
	apiServer string
	plan      string
	next      string
	shrink    int
	out       string
	output    terminal.Output
}

// Sources of the mesh's objects.
const (
	sourceFiles = "files"
	sourceKube  = "kube"
)

func (f *chaosFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Change and break a running mesh at random, and check every request",
		Long: `Runs two control planes, sidecars with real Envoys, and applications under constant traffic: HTTP/1.1,
HTTP/2, gRPC streams and TCP. A plan of random changes and faults follows from --seed. Changes create,
update and delete routes, DestinationRules, AuthorizationPolicies, PeerAuthentications, ServiceEntries
and endpoints, also in bursts, invalid ones, and some that only Envoy refuses. Faults kill, pause and
restart control planes, agents, Envoys and the API server, upgrade control planes and roll them back,
let certificates expire while the CA is away, and cut, refuse, slow down and reset connections.

Each request must have an answer that the configuration in force at some moment of it gives. ACKs must
be true. In the end each Envoy must have what a new one receives from a new control plane, and control
planes must not use more than before. The report lists each violation.

Exit status: 0 no violation, 1 violations or failed, 2 wrong flags, 130 interrupted.`,
		Example: `  moonsail-lab chaos --time 3m --seed 1 --out report/
  moonsail-lab chaos --time 60m --seed 2 --source kube --api-server .tools/kube/kube --out report/
  moonsail-lab chaos --time 1m --proxies 6 --shrink 6
  moonsail-lab chaos --plan report/report.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.DurationVar(&f.options.Time, "time", 3*time.Minute, "`TIME` of changes and faults; start and final checks add about a minute")
	fs.Uint64Var(&f.options.Seed, "seed", 1, "`NUMBER` from which all choices follow")
	fs.IntVar(&f.options.Proxies, "proxies", 12, "number of Envoys")
	fs.StringVar(&f.source, "source", sourceFiles, "where objects are: `files`, or kube (an API server, which --api-server starts)")
	fs.StringVar(&f.apiServer, "api-server", "", "`PATH` of the API server for --source kube, which 'make kube-build' builds (default: .tools/kube/kube)")
	fs.StringVar(&f.plan, "plan", "", "`FILE` with the plan to execute instead of that of --seed: a report.json")
	fs.StringVar(&f.next, "next", "", "`PATH` of the moonsail that control planes are upgraded to, and rolled back from (default: the same one with --xds-transport grpc)")
	fs.IntVar(&f.shrink, "shrink", 0, "repeat a run with violations so many `TIMES` with fewer actions, to find those that matter")
	fs.StringVar(&f.options.Envoy, "envoy", "", "`PATH` of the Envoy to run")
	fs.StringVar(&f.out, "out", "", "`DIR` for report.json, report.html and logs")
	f.output.AddFlag(cmd)
	_ = cmd.MarkFlagDirname("out") // the only error is a flag that does not exist
	terminal.Offer(cmd, "source", sourceFiles, sourceKube)
	terminal.EnvFlag(cmd, "envoy", envoy.PathVariable)
	terminal.EnvFlags(cmd)
	return cmd
}

func (f *chaosFlags) run(cmd *cobra.Command) error {
	if err := f.prepare(); err != nil {
		return err
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "starting")
	f.options.Progress = progress.Update
	report, err := chaos.Run(cmd.Context(), f.options)
	if err == nil && report.Found() > 0 && f.shrink > 0 {
		f.options.Progress = func(s string) { progress.Update("shrinking: " + s) }
		report, err = chaos.Shrink(cmd.Context(), f.options, report, f.shrink)
	}
	progress.Done()
	if report != nil && f.out != "" {
		if failed := report.Save(f.out); failed != nil {
			return &terminal.UserError{What: "cannot write the report", Where: "--out " + f.out, Err: failed, Next: "name a directory that you can write to"}
		}
	}
	if report == nil || err != nil && report.Found() == 0 {
		return err
	}
	printed := f.output.Print(cmd.OutOrStdout(), report, func(w io.Writer) error { return printChaos(w, report) })
	if err := errors.Join(err, printed); err != nil {
		return err
	}
	if report.Found() > 0 {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

// prepare validates the flags and finds the programs.
func (f *chaosFlags) prepare() (err error) {
	if f.plan != "" {
		if err := f.options.ReadPlan(f.plan); err != nil {
			return &terminal.UserError{What: "cannot read a plan", Where: "--plan " + f.plan, Err: err, Next: "name the report.json of a run"}
		}
	}
	if !slices.Contains([]string{sourceFiles, sourceKube}, f.source) || f.source == sourceFiles && f.apiServer != "" {
		return terminal.UsageError{Err: fmt.Errorf("--source %s: use files, or kube with --api-server", f.source)}
	}
	if f.source == sourceKube {
		path := f.apiServer
		if path == "" {
			path = filepath.Join(".tools", "kube", "kube")
		}
		if path, err = exec.LookPath(path); err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return &terminal.UserError{What: "cannot find the API server", Where: "--api-server " + path, Err: err, Next: "build it with 'make kube-build'"}
		}
		f.options.APIServer = []string{path}
	}
	if err := f.options.Check(); err != nil {
		return terminal.UsageError{Err: err}
	}
	if err := canWriteInto(f.out); err != nil {
		return err
	}
	f.options.Dir = f.out
	binary, err := envoy.Find(f.options.Envoy)
	if err != nil {
		return err
	}
	f.options.Envoy = binary.Path
	if f.next != "" {
		path, err := exec.LookPath(f.next)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return &terminal.UserError{What: "cannot find the program to upgrade to", Where: "--next " + f.next, Err: err, Next: "name a moonsail"}
		}
		f.options.Next = []string{path}
	}
	f.options.Programs, f.options.Version, err = findPrograms()
	return err
}

// printChaos prints a report as text.
func printChaos(w io.Writer, r *chaos.Report) error {
	s := terminal.StyleFor(w)
	fmt.Fprintf(w, "Faults on purpose, seed %d: %d Envoys, %.0f s\n%s\n\n", r.Seed, r.Shape.Proxies(), r.Time, s.Dim(r.Machine.Line()))
	fmt.Fprintf(w, "%d requests, %d changed objects, %d faults; %d requests failed while a fault disturbed one of their proxies, %d on drained connections\n",
		r.Requests(), r.Changes, r.FaultCount(), r.Excused, r.Drained)
	fmt.Fprintf(w, "%d changes ACKed by all proxies: p50 %.2f s, p99 %.2f s, at most %.2f s; %d looked up in Envoys; %d more written again before\n",
		r.ACKs.N, r.ACKs.P50, r.ACKs.P99, r.ACKs.Max, r.ACKs.Checked, r.ACKs.Replaced)
	fmt.Fprintf(w, "all was ACKed %.2f s after the last fault and change; %d resources equal those of new Envoys\n\n", r.QuietAfter, r.Compared)
	t := terminal.NewTable("FAULT", "TIMES")
	for _, what := range r.FaultNames() {
		t.Row(what, fmt.Sprint(r.Faults[what]))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for i := range r.Violations {
		v := &r.Violations[i]
		fmt.Fprintf(w, "%s %8.3f s  %s: %s: %s\n", s.Bad("violation"), v.Offset, v.Kind, v.Subject, v.Text)
	}
	verdict := s.Good("no violation")
	if n := r.Found(); n > 0 {
		verdict = s.Bad(fmt.Sprintf("%d violations", n))
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}
