package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/propagation"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
	"github.com/moonsail/moonsail/internal/terminal"
)

// propagationFlags are the flags of "moonsail-lab propagation".
type propagationFlags struct {
	options propagation.Options
	meshes  []string
	rollout string
	growth  []int
	target  string
	out     string
	quick   bool
	output  terminal.Output
}

func (f *propagationFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "propagation",
		Short: "Measure how long changes take to every proxy, and what they cost",
		Long:  propagationHelp(),
		Example: `  moonsail-lab propagation --quick
  moonsail-lab propagation --out report/
  moonsail-lab propagation --mesh 500x1000 --scenario endpoint,route --rounds 21
  moonsail-lab propagation --mesh 500x5000 --scenario endpoint --serve-flag=--xds-transport=grpc
  moonsail-lab propagation --target 127.0.0.1:15010,pid=4711 --config /srv/mesh --scenario route
  moonsail-lab propagation --source kube --kubeconfig bin/kubeconfig --target istiod=127.0.0.1:15010,pid=4711
  moonsail-lab propagation --source kube --kubeconfig bin/kubeconfig --scenario growth --growth 100,20000
  moonsail-lab propagation --source kube --kubeconfig bin/kubeconfig --scenario airbnb,expedia --quick`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addFlags(cmd)
	terminal.EnvFlags(cmd)
	return cmd
}

func propagationHelp() string {
	var b strings.Builder
	b.WriteString(`Writes a mesh as a directory of YAML, starts a control plane on it and connects simulated
sidecars: delta ADS, one TCP connection each. A scenario then makes one kind of change and
follows each change to the last proxy's ACK. The report has time, CPU, bytes, messages and
memory, and whether every proxy has the right configuration at the end.

In the same run, the same is measured with the baseline: a server on stock gRPC that computes
nothing and sends as many bytes. Results are ratios to it, because noise affects both.

--target ADDR measures another control plane, which reads the directory of --config. The lab
writes a mesh into that directory, which must be empty, and removes it at the end. With
--target NAME=ADDR and --source kube, the other control plane and Moonsail are measured in turn
in one run. If the pid is given, its process is paused while Moonsail is measured ('make bench-istiod').

--source kube writes the mesh into a Kubernetes API server ('make kube' starts one; see
--kubeconfig). The lab creates namespaces for it and deletes them at the end. The control plane
and the baseline both learn of changes from the API server. The scenario growth uses one mesh
there, which grows.

The scenarios expedia and airbnb need --source kube. In expedia, Deployments of hundreds of pods
restart (--rollout), and each pod that ends is followed until no proxy has its address. In airbnb,
one of 50 Deployments restarts and one route changes at fixed intervals. Both compare settings of
the control plane's PILOT_ variables, in turn and several times, and the control plane of
--target NAME=ADDR, whose settings stay as they are.

--budget limits the time of the run. The report lists what did not fit.

Scenarios:
`)
	for _, s := range propagation.Scenarios() {
		fmt.Fprintf(&b, "  %-17s %s\n", s.Name, s.About)
	}
	b.WriteString("\nExit status: 0 measured and every final state correct, 1 failed or a final state was wrong, 2 wrong flags.")
	return b.String()
}

func (f *propagationFlags) addFlags(cmd *cobra.Command) {
	fs, d := cmd.Flags(), propagation.DefaultOptions()
	fs.BoolVar(&f.quick, "quick", false, "small meshes and few changes: about a minute, and at most two for each scenario that needs an API server")
	fs.DurationVar(&f.options.Budget, "budget", d.Budget, "time limit of the run; scenarios that do not fit are left out (with --quick: 2m)")
	fs.BoolVar(&f.options.Defect, "defect", false, "plant a slow control plane into expedia and airbnb: the report must show it")
	_ = fs.MarkHidden("defect") // it exists
	fs.StringSliceVar(&f.options.Scenarios, "scenario", nil, "scenarios to run, by `NAME` (default: all)")
	fs.StringSliceVar(&f.meshes, "mesh", []string{"50x500", "500x1000", "500x5000"}, "meshes, as `SERVICESxPROXIES`, ascending")
	fs.IntVar(&f.options.Rounds, "rounds", d.Rounds, "changes in each scenario; in expedia and airbnb, measurements of each setting (default: 5)")
	fs.StringVar(&f.rollout, "rollout", d.Rollout.String(), "size of the expedia scenario, as `DEPLOYMENTSxPODSxPROXIES`")
	fs.IntSliceVar(&f.growth, "growth", d.Growth, "sizes of the growth scenario, in `SERVICES`, ascending; the default ends at 5000 with --source kube, where more take minutes")
	fs.StringVar(&f.target, "target", "", "`[NAME=]ADDR[,pid=N]` of another control plane; with a pid, its CPU time and memory are measured")
	fs.StringVar((*string)(&f.options.Source), "source", string(session.SourceFile), "where the control plane reads the mesh: `file` or kube")
	fs.StringVar(&f.options.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the API server for --source kube")
	fs.StringVar(&f.options.Dir, "config", "", "`DIR` that the control plane of --target reads; must be empty")
	fs.BoolVar(&f.options.TLS, "tls", false, "streams with TLS and a certificate for each proxy; not for the baseline, nor in expedia and airbnb")
	fs.StringSliceVar(&f.options.ServeFlags, "serve-flag", nil, "extra `FLAG` for 'moonsail serve', for example --route-strategy=rds")
	fs.StringVar(&f.out, "out", "", "`DIR` for report.json and report.html")
	f.output.AddFlag(cmd)
	_ = cmd.MarkFlagDirname("out") // the only error is a flag that does not exist
	_ = cmd.MarkFlagDirname("config")
}

func (f *propagationFlags) run(cmd *cobra.Command) error {
	o, err := f.build(cmd)
	if err != nil {
		return err
	}
	if err := canWriteInto(f.out); err != nil {
		return err
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "starting")
	o.Progress = progress.Update
	report, failed := propagation.Run(cmd.Context(), o)
	progress.Done()
	if err := f.publish(cmd, report); err != nil {
		return errors.Join(failed, err)
	}
	return cmp.Or(failed, wrongFinalState(report))
}

// publish saves and prints a report, also that of an experiment that failed.
func (f *propagationFlags) publish(cmd *cobra.Command, report *results.Report) error {
	if err := f.save(report); err != nil {
		return err
	}
	if err := f.output.Print(cmd.OutOrStdout(), report, func(w io.Writer) error { return printPropagation(w, report) }); err != nil {
		return err
	}
	if f.out != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s and report.json\n", filepath.Join(f.out, "report.html"))
	}
	return nil
}

// wrongFinalState returns an error unless every final state was correct.
func wrongFinalState(report *results.Report) error {
	if report.Wrong() == 0 {
		return nil
	}
	return &terminal.UserError{What: fmt.Sprintf("%d proxies or resources have a wrong final state", report.Wrong()),
		Next: "see final_state in report.json (--out DIR)"}
}

// build returns the options for the flags.
func (f *propagationFlags) build(cmd *cobra.Command) (propagation.Options, error) {
	o := propagation.DefaultOptions()
	if f.quick {
		o = propagation.QuickOptions()
	}
	if !f.quick || cmd.Flags().Changed("mesh") {
		var err error
		if o.Meshes, err = propagation.ParseMeshes(f.meshes); err != nil {
			return o, terminal.UsageError{Err: fmt.Errorf("--mesh: %w", err)}
		}
	}
	if !f.quick || cmd.Flags().Changed("rollout") {
		var err error
		if o.Rollout, err = rollout.ParseSize(f.rollout); err != nil {
			return o, terminal.UsageError{Err: fmt.Errorf("--rollout: %w", err)}
		}
	}
	if err := errors.Join(f.size(cmd, &o), f.grow(cmd, &o)); err != nil {
		return o, err
	}
	o.Scenarios, o.ServeFlags, o.Dir = f.options.Scenarios, f.options.ServeFlags, f.options.Dir
	o.Source, o.Kubeconfig, o.TLS = f.options.Source, f.options.Kubeconfig, f.options.TLS
	if err := errors.Join(f.checkSource(), f.parseTarget(&o)); err != nil {
		return o, err
	}
	if err := o.CheckScenarios(); err != nil {
		return o, terminal.UsageError{Err: fmt.Errorf("--scenario: %w", err)}
	}
	var err error
	o.Programs, o.Version, err = findPrograms()
	return o, err
}

// size sets the number of rounds and the time limit.
func (f *propagationFlags) size(cmd *cobra.Command, o *propagation.Options) error {
	given := cmd.Flags().Changed
	if !f.quick || given("rounds") {
		o.Rounds = f.options.Rounds
	}
	if given("rounds") {
		o.TrialRounds = f.options.Rounds
	}
	if !f.quick || given("budget") {
		o.Budget = f.options.Budget
	}
	o.Defect = f.options.Defect
	if o.Rounds < 1 || o.Budget < leastBudget {
		return terminal.UsageError{Err: fmt.Errorf("--rounds must be 1 or more, and --budget %s or more", leastBudget)}
	}
	return nil
}

// grow sets the sizes of the growth scenario if the flag is given.
func (f *propagationFlags) grow(cmd *cobra.Command, o *propagation.Options) error {
	if !cmd.Flags().Changed("growth") {
		return nil
	}
	o.Growth, o.GrowthMost = f.growth, 0
	if err := propagation.CheckGrowth(f.growth); err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--growth: %w", err)}
	}
	return nil
}

// checkSource reports flags that exclude each other.
func (f *propagationFlags) checkSource() error {
	switch kube := f.options.Source == session.SourceKube; {
	case !kube && f.options.Source != session.SourceFile:
		return terminal.UsageError{Err: fmt.Errorf("--source %q: use file or kube", f.options.Source)}
	case kube && f.options.Kubeconfig == "":
		return terminal.UsageError{Err: errors.New("--source kube: needs --kubeconfig: 'make kube' starts an API server and writes that file")}
	case f.options.TLS && f.target != "":
		return terminal.UsageError{Err: errors.New("--tls: excludes --target: certificates come from the authority of the control plane that the lab starts")}
	case kube && f.options.Dir != "":
		return terminal.UsageError{Err: errors.New("--config: needs --source file")}
	}
	return nil
}

func (f *propagationFlags) parseTarget(o *propagation.Options) (err error) {
	if f.target == "" {
		if o.Dir != "" {
			return terminal.UsageError{Err: errors.New("--config: needs --target: the control plane that the lab starts reads a temporary directory")}
		}
		return nil
	}
	address, pid, hasPID := strings.Cut(f.target, ",pid=")
	if _, _, err := net.SplitHostPort(address[strings.Index(address, "=")+1:]); err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--target %s: use HOST:PORT, for example 127.0.0.1:15010: %w", f.target, err)}
	}
	if o.External = address; hasPID {
		if o.ExternalPID, err = strconv.Atoi(pid); err != nil || o.ExternalPID < 1 {
			return terminal.UsageError{Err: fmt.Errorf("--target %s: pid=%q: use the number of a process", f.target, pid)}
		}
	}
	if name, at, named := strings.Cut(address, "="); named {
		o.Peer = &session.Peer{Name: name, Address: at, PID: o.ExternalPID}
		o.External, o.ExternalPID = "", 0
		if o.Source != session.SourceKube {
			return terminal.UsageError{Err: fmt.Errorf("--target %s: a comparison needs one API server for both: add --source kube", f.target)}
		}
		return nil
	}
	if o.Dir == "" && o.Source != session.SourceKube {
		return terminal.UsageError{Err: errors.New("--target: needs --config: the empty directory that this control plane reads")}
	}
	return nil
}

func (f *propagationFlags) save(r *results.Report) error {
	if f.out == "" {
		return nil
	}
	if err := r.Save(f.out); err != nil {
		return &terminal.UserError{What: "cannot write the report", Where: "--out " + f.out, Err: err, Next: "name a directory that you can write to"}
	}
	return nil
}
