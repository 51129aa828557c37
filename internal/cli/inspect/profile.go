package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/profile"
	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
	"github.com/moonsail/moonsail/internal/terminal"
)

// profileFlags are the values of the flags of `moonsail profile` and its subcommand.
type profileFlags struct {
	client    client.ControlPlane
	out       terminal.Output
	dir       string
	duration  time.Duration
	pid       int
	frequency int
	top       int
}

// Bounds of profiles.
const (
	defaultProfileTime = 10 * time.Second
	longestProfile     = 10 * time.Minute
	defaultFrequency   = 99 // not in step with events that happen each 10 ms
	highestFrequency   = 10_000
)

func newProfileCommand() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "profile {PROXY | control-plane}",
		Short: "Profile the CPU of a sidecar's Envoy or of the control plane",
		Long: `Sample the Envoy of a sidecar with perf, and print the CPU of its threads and of its functions. PROXY is
name.namespace or a node id. --out writes, to a directory,

  profile.svg     a flame graph, for browsers
  stacks.folded   the stacks, for other tools
  profile.json    the tables

The command must run on the machine of the sidecar, as root or as a user who may use perf. The
control plane and the agent find the process, also in a container. --pid names a process without
them. 'moonsail profile control-plane' profiles the control plane, from any machine.

Envoy's releases are stripped. Virtual functions have the name of their class and their place in its
table (Envoy::Http::ConnectionManagerImpl::v#12). Others have module and offset, which are the same
in each profile. The output has the share of samples with names.

Exit status: 0 profiled, 1 failed, 2 wrong usage, 130 interrupted.`,
		Example: `  # Profile a sidecar
  moonsail profile reviews-v1-1.shop

  # Profile it for longer, with a flame graph
  moonsail profile reviews-v1-1.shop --duration 30s --out report/

  # Profile a process
  moonsail profile --pid 4711 -o json | jq '.threads[] | {name, cpu}'

  # Profile the control plane
  moonsail profile control-plane --out report/`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.run,
	}
	f.addFlags(cmd)
	fs := cmd.Flags()
	fs.IntVar(&f.pid, "pid", 0, "`ID` of an Envoy process on this machine, instead of PROXY")
	fs.IntVar(&f.frequency, "frequency", defaultFrequency, "samples per second of each running thread")
	cmd.ValidArgsFunction = f.client.ProxyNames(1)
	f.client.AddProxyNamespace(cmd, 1)
	cmd.AddCommand(newProfileControlPlaneCommand())
	return cmd
}

func newProfileControlPlaneCommand() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "control-plane",
		Short: "Profile the CPU of the control plane",
		Long: `Take a CPU profile of a control plane, in a cluster of one replica, and print the CPU by the function that started the
goroutine, and by the function that used it. --out writes profile.svg (a flame graph),
stacks.folded, profile.json and cpu.pprof (for 'go tool pprof') to a directory.`,
		Example: `  # Profile the control plane on this machine
  moonsail profile control-plane

  # Profile another one for longer
  moonsail profile control-plane --duration 30s --out report/ --address 10.0.0.7:15014`,
		Args: cobra.NoArgs,
		RunE: f.runControlPlane,
	}
	f.addFlags(cmd)
	return cmd
}

func (f *profileFlags) addFlags(cmd *cobra.Command) {
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd)
	fs := cmd.Flags()
	fs.DurationVar(&f.duration, "duration", defaultProfileTime, "time to sample")
	fs.StringVar(&f.dir, "out", "", "`DIR` for the flame graph, the stacks and the tables")
	fs.IntVar(&f.top, "top", 15, "number of functions to print")
	_ = cmd.MarkFlagDirname("out") // the only error is a flag that does not exist
}

func (f *profileFlags) check() error {
	switch {
	case f.duration < time.Second || f.duration > longestProfile:
		return terminal.UsageError{Err: fmt.Errorf("--duration %s: out of range: use 1s to %s", f.duration, longestProfile)}
	case f.top < 0:
		return terminal.UsageError{Err: errors.New("--top: negative: use 0 or more")}
	}
	return nil
}

func (f *profileFlags) run(cmd *cobra.Command, names []string) error {
	if err := f.check(); err != nil {
		return err
	}
	switch {
	case (len(names) == 0) == (f.pid == 0):
		return terminal.UsageError{Err: errors.New("name either a proxy, or a process with --pid")}
	case f.pid < 0:
		return terminal.UsageError{Err: errors.New("--pid: negative: use the id of a process")}
	case f.frequency < 1 || f.frequency > highestFrequency:
		return terminal.UsageError{Err: fmt.Errorf("--frequency %d: out of range: use 1 to %d", f.frequency, highestFrequency)}
	}
	subject := fmt.Sprintf("process %d", f.pid)
	if f.pid == 0 {
		var err error
		if names[0], err = f.client.ResolveProxy(cmd.Context(), names[0]); err != nil {
			return err
		}
		if f.pid, err = f.find(cmd.Context(), names[0]); err != nil {
			return err
		}
		subject = fmt.Sprintf("the Envoy of %s, process %d", names[0], f.pid)
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), fmt.Sprintf("sampling %s for %s", subject, f.duration))
	p, err := profile.Record(cmd.Context(), &profile.Options{PID: f.pid, Duration: f.duration, Frequency: f.frequency})
	progress.Done()
	if err != nil {
		return explainPerf(err, subject)
	}
	p.Subject = subject
	return f.show(cmd, p, nil)
}

// find returns the process of a proxy's Envoy.
func (f *profileFlags) find(ctx context.Context, name string) (int, error) {
	var r workers.Report
	if err := f.client.GetProxy(ctx, "/debug/proxies/", name, "/envoy/workers", &r); err != nil {
		return 0, err
	}
	pid, err := r.Process.Find("/proc")
	if err != nil {
		return 0, &terminal.UserError{What: "cannot sample the Envoy of " + name, Err: err,
			Next: "run this command as root on the proxy's machine, or use --pid there"}
	}
	return pid, nil
}

// explainPerf adds the next step to an error of perf.
func explainPerf(err error, subject string) error {
	explained := &terminal.UserError{What: "cannot sample " + subject, Err: err}
	switch {
	case errors.Is(err, profile.ErrNoPerf):
		explained.Next = "install perf (package linux-perf, perf or linux-tools), or add it to PATH"
	case errors.Is(err, profile.ErrNotPermitted):
		explained.Next = "run this command as root, or as Envoy's user after 'sysctl kernel.perf_event_paranoid=1'; " +
			"a container needs the capabilities PERFMON and SYS_PTRACE"
	case errors.Is(err, profile.ErrNoProcess):
		explained.Next = "use the id of a process on this machine, or a proxy that 'moonsail proxies' lists"
	case errors.Is(err, profile.ErrIdle):
		explained.Next = "send requests while it samples, or raise --duration"
	default:
		return err
	}
	return explained
}

func (f *profileFlags) runControlPlane(cmd *cobra.Command, _ []string) error {
	if err := f.check(); err != nil {
		return err
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), fmt.Sprintf("sampling the control plane for %s", f.duration))
	raw, from, err := f.cpuProfile(cmd.Context())
	progress.Done()
	if err != nil {
		return err
	}
	p, err := profile.FromGo(raw)
	if err != nil {
		return explainPerf(err, from.String())
	}
	p.Subject = from.String()
	return f.show(cmd, p, raw)
}

// cpuProfile fetches a CPU profile from one replica of the control plane.
func (f *profileFlags) cpuProfile(ctx context.Context) ([]byte, *client.Replica, error) {
	ctx, cancel := context.WithTimeout(ctx, f.duration+client.Timeout)
	defer cancel()
	page := fmt.Sprintf("/debug/pprof/profile?seconds=%d", int((f.duration+time.Second-1)/time.Second))
	return f.client.TextFrom(ctx, page)
}

func (f *profileFlags) show(cmd *cobra.Command, p *profile.Profile, raw []byte) error {
	if f.dir != "" {
		if err := p.Save(f.dir, raw); err != nil {
			return &terminal.UserError{What: "cannot write the profile", Where: "--out " + f.dir, Err: err, Next: "name a directory that can be written"}
		}
	}
	if err := f.out.Print(cmd.OutOrStdout(), p, func(w io.Writer) error { return printProfile(w, p, f.top) }); err != nil {
		return err
	}
	if f.dir != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote profile.svg, stacks.folded and profile.json to %s\n", f.dir)
	}
	return nil
}

// printProfile prints the threads and the functions of a profile.
func printProfile(w io.Writer, p *profile.Profile, top int) error {
	s := terminal.StyleFor(w)
	fmt.Fprintf(w, "%s: %.1f s, %d samples; names: %.0f%% of the innermost functions, %.0f%% of all frames\n\n",
		s.Bold(p.Subject), p.Seconds, p.Samples, 100*p.Named, 100*p.Frames)
	threads := terminal.NewTable(threadHeading(p), "CPU", "SAMPLES", "MOST IN")
	for _, t := range p.Threads {
		if idle(&t) {
			continue
		}
		most := "-"
		if len(t.Top) > 0 {
			most = cut(flamegraph.Plain(t.Top[0].Name))
		}
		threads.Row(cut(t.Name), cpuOf(t.CPU), partOf(t.Samples, p.Samples), most)
	}
	if err := threads.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	functions := terminal.NewTable("SELF", "TOTAL", "FUNCTION")
	for _, f := range p.Functions[:min(top, len(p.Functions))] {
		if f.Self > 0 {
			functions.Row(partOf(f.Self, p.Samples), partOf(f.Total, p.Samples), cut(flamegraph.Plain(f.Name)))
		}
	}
	return functions.Write(w)
}

// idle reports whether to leave out a thread because it did nothing. The main thread and the
// workers are always listed.
func idle(t *profile.Thread) bool {
	return t.Samples == 0 && t.CPU < 0.01 && !strings.HasPrefix(t.Name, "main:") && !strings.HasPrefix(t.Name, "wrk:")
}

func cpuOf(cpu float64) string {
	if cpu < 0 {
		return "?"
	}
	return fmt.Sprintf("%.1f%%", 100*cpu)
}

func threadHeading(p *profile.Profile) string {
	if p.PID == 0 {
		return "GOROUTINES STARTED BY"
	}
	return "THREAD"
}

func partOf(n, of int64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(of, 1))) }

// widestName bounds the name of a function in a table. Its end says most.
const widestName = 100

func cut(name string) string {
	if text := []rune(name); len(text) > widestName {
		return "…" + string(text[len(text)-widestName+1:])
	}
	return name
}
