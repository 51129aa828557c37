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
	"github.com/moonsail/moonsail/internal/terminal"
)

// propagationFlags are those of "moonsail-lab propagation".
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
	b.WriteString(`Writes a mesh as a directory of YAML, has a control plane serve it, connects simulated
sidecars (delta ADS, a TCP connection each), changes one thing at a time, and follows
each change to the last proxy's ACK: time, CPU, bytes and messages, memory; and whether
every proxy holds the right thing in the end.

Beside it in the same run stands the floor: a server on stock gRPC that computes
nothing and sends as many bytes. Results are ratios to it, as noise hits both.

--target ADDR measures another control plane, which must read --config; the lab writes a
mesh into that directory, which must be empty, and removes it in the end. With a name,
--target NAME=ADDR, and --source kube it is measured in turn with Moonsail in one run; while
Moonsail is, its process is paused where the pid is given ('make bench-istiod').

--source kube writes the mesh into a Kubernetes API server instead ('make kube' starts one;
see --kubeconfig), in namespaces of its own, which are deleted in the end; the control plane
under test reads it from there, and the floor hears of as much from it. Growth has one mesh there,
which grows. Expedia and airbnb are for this source alone. In expedia real controllers roll out
Deployments of hundreds of pods (--rollout), and each pod that goes is followed until no proxy
knows it any more. In airbnb some of 50 Deployments restarts and some route changes by the clock.
Both are measured under each of several settings of the control plane's PILOT_ switches, in turn
and several times; and at the control plane of --target NAME=ADDR, which has no switches here.

--budget bounds all; what does not fit is left out, and the report says so.

Scenarios:
`)
	for _, s := range propagation.Scenarios() {
		fmt.Fprintf(&b, "  %-17s %s\n", s.Name, s.About)
	}
	b.WriteString("\nExit status: 0 measured and every final state right, 1 failed or a state was wrong, 2 wrong flags.")
	return b.String()
}

func (f *propagationFlags) addFlags(cmd *cobra.Command) {
	fs, d := cmd.Flags(), propagation.DefaultOptions()
	fs.BoolVar(&f.quick, "quick", false, "small meshes and few changes: about a minute, two at most for each that needs an API server")
	fs.DurationVar(&f.options.Budget, "budget", d.Budget, "how long all may take; what does not fit is left out (with --quick: 2m)")
	fs.BoolVar(&f.options.Defect, "defect", false, "plant a slow control plane into expedia and airbnb: the report must show it")
	_ = fs.MarkHidden("defect") // it exists
	fs.StringSliceVar(&f.options.Scenarios, "scenario", nil, "scenarios to run, by `NAME` (default: all)")
	fs.StringSliceVar(&f.meshes, "mesh", []string{"50x500", "500x1000", "500x5000"}, "meshes, as `SERVICESxPROXIES`, ascending")
	fs.IntVar(&f.options.Rounds, "rounds", d.Rounds, "changes of each scenario; of expedia and airbnb, measurements of each setting (default: 5)")
	fs.StringVar(&f.rollout, "rollout", d.Rollout.String(), "size of the expedia scenario, as `DEPLOYMENTSxPODSxPROXIES`")
	fs.IntSliceVar(&f.growth, "growth", d.Growth, "sizes of the growth scenario, `SERVICES`, ascending; from an API server up to 5000 unless they are given: it takes minutes for more")
	fs.StringVar(&f.target, "target", "", "`[NAME=]ADDR[,pid=N]` of another control plane; its CPU time and memory are read where the pid is given")
	fs.StringVar((*string)(&f.options.Source), "source", string(propagation.SourceFile), "where the mesh is: `file`, or kube")
	fs.StringVar(&f.options.Kubeconfig, "kubeconfig", "", "`FILE` that tells the API server of --source kube")
	fs.StringVar(&f.options.Dir, "config", "", "`DIR` that the control plane of --target reads")
	fs.BoolVar(&f.options.TLS, "tls", false, "streams with TLS, and a certificate for each proxy; not for the floor, nor in expedia and airbnb")
	fs.StringSliceVar(&f.options.ServeFlags, "serve-flag", nil, "`FLAG` for 'moonsail serve', for example --route-strategy=rds")
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
	if err := f.tell(cmd, report); err != nil {
		return errors.Join(failed, err)
	}
	return cmp.Or(failed, wrongInTheEnd(report))
}

// tell saves and prints a report; also one of an experiment that has failed.
func (f *propagationFlags) tell(cmd *cobra.Command, report *propagation.Report) error {
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

// wrongInTheEnd is an error where not every final state was right.
func wrongInTheEnd(report *propagation.Report) error {
	if report.Wrong() == 0 {
		return nil
	}
	return &terminal.UserError{What: fmt.Sprintf("%d proxies or resources were not as they should be in the end", report.Wrong()),
		Next: "see final_state in report.json (--out DIR)"}
}

// build makes the options of flags.
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
		if o.Rollout, err = propagation.ParseRollout(f.rollout); err != nil {
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

// size takes how often, and how long.
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

// grow takes sizes that are given, all of them.
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

// checkSource tells of flags that do not go together.
func (f *propagationFlags) checkSource() error {
	switch kube := f.options.Source == propagation.SourceKube; {
	case !kube && f.options.Source != propagation.SourceFile:
		return terminal.UsageError{Err: fmt.Errorf("--source is file or kube, not %q", f.options.Source)}
	case kube && f.options.Kubeconfig == "":
		return terminal.UsageError{Err: errors.New("--source kube needs --kubeconfig: 'make kube' starts an API server and writes one")}
	case f.options.TLS && f.target != "":
		return terminal.UsageError{Err: errors.New("--tls is for the lab's own control plane: it makes certificates by that one's authority")}
	case kube && f.options.Dir != "":
		return terminal.UsageError{Err: errors.New("--config is for --source file")}
	}
	return nil
}

func (f *propagationFlags) parseTarget(o *propagation.Options) (err error) {
	if f.target == "" {
		if o.Dir != "" {
			return terminal.UsageError{Err: errors.New("--config is for --target: the lab's own control plane gets a temporary directory")}
		}
		return nil
	}
	address, pid, hasPID := strings.Cut(f.target, ",pid=")
	if _, _, err := net.SplitHostPort(address[strings.Index(address, "=")+1:]); err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--target %s: it is not HOST:PORT, as 127.0.0.1:15010 is: %w", f.target, err)}
	}
	if o.Target = address; hasPID {
		if o.TargetPID, err = strconv.Atoi(pid); err != nil || o.TargetPID < 1 {
			return terminal.UsageError{Err: fmt.Errorf("--target %s: pid=%q is not the number of a process", f.target, pid)}
		}
	}
	if name, at, named := strings.Cut(address, "="); named {
		o.Peer = &propagation.Peer{Name: name, Address: at, PID: o.TargetPID}
		o.Target, o.TargetPID = "", 0
		if o.Source != propagation.SourceKube {
			return terminal.UsageError{Err: fmt.Errorf("--target %s: side by side both read one API server: add --source kube", f.target)}
		}
		return nil
	}
	if o.Dir == "" && o.Source != propagation.SourceKube {
		return terminal.UsageError{Err: errors.New("--target needs --config: the empty directory that this control plane reads")}
	}
	return nil
}

func (f *propagationFlags) save(r *propagation.Report) error {
	if f.out == "" {
		return nil
	}
	if err := r.Save(f.out); err != nil {
		return &terminal.UserError{What: "cannot write the report", Where: "--out " + f.out, Err: err, Next: "name a directory that you may write to"}
	}
	return nil
}
