package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/profile"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
	"github.com/moonsail/moonsail/internal/terminal"
)

// profileFlags are those of "moonsail profile" and what is below it.
type profileFlags struct {
	client    debugClient
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
	defaultFrequency   = 99 // not in step with what happens each 10 ms
	highestFrequency   = 10_000
)

// NewProfileCommand is "moonsail profile".
func NewProfileCommand() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "profile {PROXY | control-plane}",
		Short: "Show where a sidecar's Envoy, or the control plane, spends its CPU",
		Long: `Has perf sample the Envoy of a sidecar (by name.namespace or node id), and prints the CPU of
each of its threads and the functions that it was in. With --out DIR it writes

  profile.svg     a flame graph, for any browser
  stacks.folded   the stacks, for other tools
  profile.json    the tables

The control plane and the sidecar's agent tell which process it is, in whatever container;
the command must run on the same machine, as root or as who may use perf there. --pid names
a process instead, and asks nobody. To profile the control plane itself, which may be
anywhere: moonsail profile control-plane.

Envoy's releases are stripped. Virtual functions get the name of their class and their place
in its table (Envoy::Http::ConnectionManagerImpl::v#12), as the program has these for
dynamic_cast; the others are told as module and offset, the same each time. Which share of
samples has names is said.`,
		Example: `  moonsail profile reviews-v1-1.shop
  moonsail profile reviews-v1-1.shop --duration 30s --out report/
  moonsail profile --pid 4711 -o json | jq '.threads[] | {name, cpu}'
  moonsail profile control-plane --out report/`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.run,
	}
	f.addFlags(cmd)
	fs := cmd.Flags()
	fs.IntVar(&f.pid, "pid", 0, "`ID` of an Envoy's process on this machine, instead of a proxy's name")
	fs.IntVar(&f.frequency, "frequency", defaultFrequency, "samples a second of each thread that runs")
	cmd.ValidArgsFunction = f.client.proxyNames(1)
	cmd.AddCommand(newProfileControlPlane())
	return cmd
}

func newProfileControlPlane() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "control-plane",
		Short: "Show where the control plane spends its CPU",
		Long: `Takes a CPU profile of the control plane at --address, and prints what used its CPU: the
functions that goroutines began with, and the functions that they were in. With --out DIR it
writes profile.svg (a flame graph), stacks.folded, profile.json and cpu.pprof, which
'go tool pprof' reads.`,
		Example: `  moonsail profile control-plane
  moonsail profile control-plane --duration 30s --out report/ --address 10.0.0.7:15014`,
		Args: cobra.NoArgs,
		RunE: f.runControlPlane,
	}
	f.addFlags(cmd)
	return cmd
}

func (f *profileFlags) addFlags(cmd *cobra.Command) {
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	fs := cmd.Flags()
	fs.DurationVar(&f.duration, "duration", defaultProfileTime, "how long")
	fs.StringVar(&f.dir, "out", "", "`DIR` for the flame graph, the stacks and the tables")
	fs.IntVar(&f.top, "top", 15, "functions to print")
	_ = cmd.MarkFlagDirname("out") // the only error is a flag that does not exist
}

func (f *profileFlags) check() error {
	switch {
	case f.duration < time.Second || f.duration > longestProfile:
		return terminal.UsageError{Err: fmt.Errorf("--duration is from 1s to %s, not %s", longestProfile, f.duration)}
	case f.top < 0:
		return terminal.UsageError{Err: errors.New("--top is not negative")}
	}
	return nil
}

func (f *profileFlags) run(cmd *cobra.Command, names []string) error {
	if err := f.check(); err != nil {
		return err
	}
	switch {
	case (len(names) == 0) == (f.pid == 0):
		return terminal.UsageError{Err: errors.New("name a proxy, or a process with --pid: one of them")}
	case f.pid < 0:
		return terminal.UsageError{Err: errors.New("--pid is the id of a process")}
	case f.frequency < 1 || f.frequency > highestFrequency:
		return terminal.UsageError{Err: fmt.Errorf("--frequency is from 1 to %d", highestFrequency)}
	}
	subject := fmt.Sprintf("process %d", f.pid)
	if f.pid == 0 {
		var err error
		if f.pid, err = f.find(cmd.Context(), names[0]); err != nil {
			return err
		}
		subject = fmt.Sprintf("the Envoy of %s, process %d", names[0], f.pid)
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), fmt.Sprintf("sampling %s for %s", subject, f.duration))
	p, err := profile.Record(cmd.Context(), &profile.Options{PID: f.pid, Duration: f.duration, Frequency: f.frequency})
	progress.Done()
	if err != nil {
		return perfFault(err, subject)
	}
	p.Subject = subject
	return f.show(cmd, p, nil)
}

// find asks which process a proxy's Envoy is.
func (f *profileFlags) find(ctx context.Context, name string) (int, error) {
	var r workers.Report
	if err := f.client.getOf(ctx, "/debug/proxies/", name, "/envoy/workers", &r); err != nil {
		return 0, err
	}
	pid, err := r.Process.Find("/proc")
	if err != nil {
		return 0, &terminal.UserError{What: "the Envoy of " + name + " cannot be sampled from here", Err: err,
			Next: "run this command as root on the proxy's machine, or there with --pid"}
	}
	return pid, nil
}

// perfFault says what to do where perf could not sample.
func perfFault(err error, subject string) error {
	fault := &terminal.UserError{What: "cannot sample " + subject, Err: err}
	switch {
	case errors.Is(err, profile.ErrNoPerf):
		fault.Next = "install it (the package is called linux-perf, perf or linux-tools), or put it on PATH"
	case errors.Is(err, profile.ErrNotPermitted):
		fault.Next = "run this command as root, or as the Envoy's user after 'sysctl kernel.perf_event_paranoid=1'; " +
			"in a container it needs the capabilities PERFMON and SYS_PTRACE"
	case errors.Is(err, profile.ErrNoProcess):
		fault.Next = "'moonsail proxies' lists the proxies that there are; ids are of this machine"
	case errors.Is(err, profile.ErrIdle):
		fault.Next = "send it requests meanwhile, or sample for longer (--duration)"
	default:
		return err
	}
	return fault
}

func (f *profileFlags) runControlPlane(cmd *cobra.Command, _ []string) error {
	if err := f.check(); err != nil {
		return err
	}
	subject := "the control plane at " + f.client.address
	progress := terminal.StartProgress(cmd.ErrOrStderr(), fmt.Sprintf("sampling %s for %s", subject, f.duration))
	raw, err := f.cpuProfile(cmd.Context())
	progress.Done()
	if err != nil {
		return err
	}
	p, err := profile.FromGo(raw)
	if err != nil {
		return perfFault(err, subject)
	}
	p.Subject = subject
	return f.show(cmd, p, raw)
}

// cpuProfile has the control plane profile itself.
func (f *profileFlags) cpuProfile(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.duration+debugTimeout)
	defer cancel()
	page := fmt.Sprintf("/debug/pprof/profile?seconds=%d", int((f.duration+time.Second-1)/time.Second))
	raw, err := f.client.text(ctx, page)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return nil, f.client.unreachable(f.client.url(page), err)
	}
	return raw, err
}

func (f *profileFlags) show(cmd *cobra.Command, p *profile.Profile, raw []byte) error {
	if f.dir != "" {
		if err := p.Save(f.dir, raw); err != nil {
			return &terminal.UserError{What: "cannot write the profile", Where: "--out " + f.dir, Err: err, Next: "name a directory that you may write to"}
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
