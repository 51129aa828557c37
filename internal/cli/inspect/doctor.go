package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/diagnose/doctor"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// doctorFlags are the values of the flags of `moonsail doctor`.
type doctorFlags struct {
	client   client.ControlPlane
	out      terminal.Output
	sidecars []string
	over     time.Duration
}

const longestDoctorWatch = time.Hour

func newDoctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose a running mesh",
		Long: `Diagnose a running mesh, of Moonsail or istiod. The command reads metrics of the control plane and the
admin interfaces of Envoys, and changes nothing. It reports proxies that are behind or refuse
configuration now, late changes and their stage, long queues, responses far larger than the change,
calls between services that fail, calls to dead endpoints, connections on one of many worker threads,
services without calls, and expensive filters. Each finding has its evidence and the setting that cures
it.

  ill     users notice it
  risk    it costs resources, or users will notice it under load
  blind   the mesh does not measure it; the cure is a setting that does
  past    it was a problem, and is none now

A proxy is behind if it has not had a change for a second. 'moonsail proxies' lists the same states.
Calls fail if more than 5 % of at least 20 requests of a workload to a service have errors, of the last
minutes, as 'moonsail dependencies' lists them. A control plane that learns no dependencies has none.
Counters cover the time since the start of a process. With --over, they cover the given time.

Without --sidecar the command examines the control plane, all its replicas in a cluster; with --sidecar
alone, these Envoys; with --sidecar and a flag that chooses a control plane, both.

Exit status: 0 nothing is ill, 1 something is ill or cannot be read, 2 wrong usage,
130 interrupted.`,
		Example: `  # Diagnose the control plane on this machine or in the cluster, Moonsail or istiod
  moonsail doctor

  # Diagnose it and a sidecar for a minute
  kubectl -n shop port-forward reviews-v1-1 15000 &
  moonsail doctor -i istio-system --sidecar 127.0.0.1:15000 --over 1m

  # Select fields of the findings
  moonsail doctor -o json | jq '.findings[] | {severity, what, cure}'`,
		Args: cobra.NoArgs,
		RunE: f.run,
	}
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().StringSliceVar(&f.sidecars, "sidecar", nil, "`ADDRESSES` of Envoys' admin interfaces, as host:port or unix:///path")
	cmd.Flags().DurationVar(&f.over, "over", 0, "time to watch counters; 0: use their values since the start")
	return cmd
}

func (f *doctorFlags) run(cmd *cobra.Command, _ []string) error {
	if f.over < 0 || f.over > longestDoctorWatch {
		return terminal.UsageError{Err: fmt.Errorf("--over %s: out of range: use 0 to %s", f.over, longestDoctorWatch)}
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "examining")
	report, err := f.examine(cmd.Context(), func() { progress.Update(fmt.Sprintf("watching for %s", f.over)) })
	progress.Done()
	if err != nil {
		return err
	}
	if err := f.out.Print(cmd.OutOrStdout(), report, func(w io.Writer) error { return printDoctor(cmd, w, report) }); err != nil {
		return err
	}
	if report.HasCritical() {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

// examine examines the replicas of the control plane, and the sidecars together with the first of them.
func (f *doctorFlags) examine(ctx context.Context, watching func()) (*doctor.Report, error) {
	if len(f.sidecars) > 0 && !f.client.IsChosen() {
		return examine(ctx, doctor.Options{Sidecars: f.sidecars, Over: f.over, Watching: watching})
	}
	return examineReplicas(ctx, &f.client, doctor.Options{Sidecars: f.sidecars, Over: f.over, Watching: watching})
}

// examineReplicas examines all replicas of a control plane, and the sidecars of the options.
func examineReplicas(ctx context.Context, plane *client.ControlPlane, options doctor.Options) (*doctor.Report, error) {
	replicas, err := plane.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	reports := make([]*doctor.Report, len(replicas))
	err = plane.Each(ctx, func(i int, r *client.Replica) (err error) {
		o := doctor.Options{Over: options.Over, Address: r.Name, Metrics: metricsOf(r), Connected: connectedTo(r)}
		if i == 0 {
			o.Sidecars, o.Watching = options.Sidecars, options.Watching
		}
		reports[i], err = examine(ctx, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	reports = slices.DeleteFunc(reports, func(r *doctor.Report) bool { return r == nil })
	return doctor.Join(reports), nil
}

func examine(ctx context.Context, o doctor.Options) (*doctor.Report, error) {
	evidence, err := doctor.Collect(ctx, o)
	if err != nil {
		return nil, err
	}
	return doctor.Examine(evidence), nil
}

// metricsTimeout is longer than that of other pages: an overloaded control plane answers late.
const metricsTimeout = time.Minute

// metricsOf reads the metrics of a control plane, Moonsail's or istiod's.
func metricsOf(r *client.Replica) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
		defer cancel()
		return r.Text(ctx, "/metrics")
	}
}

// connectedTo reads the state of the proxies of a control plane of Moonsail.
func connectedTo(r *client.Replica) func(context.Context) (*doctor.Connected, error) {
	return func(ctx context.Context) (*doctor.Connected, error) {
		var list debug.ProxyList
		if err := r.Get(ctx, "/debug/proxies?local", &list); err != nil {
			return nil, err
		}
		c := &doctor.Connected{Now: list.Now, Stale: &explain.Stale{}}
		for i := range list.Proxies {
			c.Proxies = append(c.Proxies, connectedProxy(&list.Proxies[i]))
		}
		var gone debug.ProxyList // unlike the list of one control plane, this one knows who is connected to another
		if err := r.Get(ctx, "/debug/proxies?disconnected", &gone); err != nil {
			return nil, err
		}
		for i := range gone.Disconnected {
			if p := &gone.Disconnected[i]; p.ControlPlane == "" { // else another replica has it
				c.Disconnected = append(c.Disconnected, doctor.DisconnectedProxy{Name: p.Name + "." + p.Namespace, Since: p.DisconnectedSince, Settled: uint64(p.Settled)})
			}
		}
		problems := struct {
			Translation *[]doctor.UntranslatedResource `json:"translation"`
		}{&c.Untranslated}
		if err := r.Get(ctx, "/debug/problems", &problems); err != nil {
			return nil, err
		}
		if err := r.Get(ctx, "/debug/stale?local", c.Stale); err != nil {
			return nil, err
		}
		calls := &dependencies.Report{}
		if err := r.Get(ctx, "/debug/dependencies?local", calls); err != nil && !client.IsNotFound(err) { // it may learn none
			return nil, err
		}
		c.Calls = measuredCalls(calls)
		return c, nil
	}
}

// measuredCalls returns the calls of which a control plane has counted the last requests.
func measuredCalls(r *dependencies.Report) (out []doctor.Call) {
	for i := range r.Workloads {
		w := &r.Workloads[i]
		for j := range w.Calls {
			c := &w.Calls[j]
			m := c.Measured
			if m == nil {
				continue
			}
			call := doctor.Call{
				From: w.Name + "." + w.Namespace, To: calledName(c), Requests: m.Requests, Errors: m.Errors, Seconds: m.Seconds, Failures: failureTexts(m),
				Why: fmt.Sprintf("moonsail why %s %s", cmp.Or(w.Proxy, w.Name+"."+w.Namespace), calledURL(c)),
			}
			out = append(out, call)
		}
	}
	return out
}

func connectedProxy(p *server.ProxyState) doctor.ConnectedProxy {
	out := doctor.ConnectedProxy{Name: p.Name + "." + p.Namespace, Behind: p.Behind(), BehindSince: p.BehindSince, Unread: p.Unread}
	for i := range p.Types {
		t := &p.Types[i]
		of := doctor.ConnectedType{Type: t.Type, UnansweredSince: t.InFlightSince, Waits: t.Waiting}
		for _, h := range t.Held {
			of.Refused = append(of.Refused, doctor.RefusedResource{Name: h.Name, Message: h.Message, Since: h.Since, By: h.By.String()})
		}
		out.Types = append(out.Types, of)
	}
	return out
}

func printDoctor(cmd *cobra.Command, w io.Writer, r *doctor.Report) error {
	s := terminal.StyleFor(w)
	var b strings.Builder
	for _, x := range r.Subjects {
		fmt.Fprintf(&b, "%s %s %s, seen %s\n", x.Kind, x.Version, x.Name, x.Seen)
	}
	for i := range r.Findings {
		x := &r.Findings[i]
		fmt.Fprintf(&b, "\n%s %s  (%s, %s)\n", paintSeverity(s, x.Severity), s.Bold(x.What), x.Check, x.Subject)
		for _, e := range x.Evidence {
			fmt.Fprintf(&b, "      %s\n", terminal.Escape(e))
		}
		for _, c := range x.Advice {
			fmt.Fprintf(&b, "   -> %s\n", terminal.Hint(cmd, c))
		}
	}
	b.WriteByte('\n')
	for _, x := range r.Subjects {
		var names []string
		for _, h := range r.Healthy {
			if h.Subject == x.Name {
				names = append(names, h.Check)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "%s  %s: %s\n", s.Good("well"), x.Name, strings.Join(names, ", "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func paintSeverity(s terminal.Style, severity doctor.Severity) string {
	text := fmt.Sprintf("%-5s", severity)
	switch severity {
	case doctor.Critical:
		return s.Bad(text)
	case doctor.Warning:
		return s.Warn(text)
	}
	return text
}
