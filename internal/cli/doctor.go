package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/doctor"
	"github.com/moonsail/moonsail/internal/terminal"
)

// doctorFlags are those of "moonsail doctor".
type doctorFlags struct {
	client   debugClient
	out      terminal.Output
	sidecars []string
	over     time.Duration
}

const longestDoctorWatch = time.Hour

// NewDoctorCommand is "moonsail doctor".
func NewDoctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say which illnesses a running mesh has, Istio's or Moonsail's, and what cures them",
		Long: `Reads the metrics of a control plane, istiod or Moonsail, and what the Envoys of sidecars tell at their
admin interfaces, and says which illnesses these show: changes that arrive late and at which stage,
queues, proxies that are sent far more than changed, refused configuration, dead endpoints that are
called, connections on one of many worker threads, services that are never called, filters that cost.
Each with its evidence, and with the setting that cures it. It changes nothing.

  ill     users feel it
  risk    it costs, or will be felt under load
  blind   the mesh does not tell whether it has that illness, and what to set so that it does

Counters are taken since their processes started; --over watches them for a while instead, which
tells how the mesh is now. The exit status is 1 where anything is ill.

Without --sidecar the control plane at --address is examined; with --sidecar alone, those Envoys;
with both, both.`,
		Example: `  moonsail doctor                                # the control plane on this machine
  kubectl -n istio-system port-forward deploy/istiod 15014 &
  kubectl -n shop port-forward reviews-v1-1 15000 &
  moonsail doctor --address 127.0.0.1:15014 --sidecar 127.0.0.1:15000 --over 1m
  moonsail doctor -o json | jq '.findings[] | {severity, what, cure}'`,
		Args: cobra.NoArgs,
		RunE: f.run,
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().StringSliceVar(&f.sidecars, "sidecar", nil, "`ADDRESS` of the admin interface of an Envoy (host:port, or unix:///path); several with commas between them")
	cmd.Flags().DurationVar(&f.over, "over", 0, "how long counters are watched; 0: they are taken since their processes started")
	return cmd
}

func (f *doctorFlags) run(cmd *cobra.Command, _ []string) error {
	if f.over < 0 || f.over > longestDoctorWatch {
		return terminal.UsageError{Err: fmt.Errorf("--over is from 0 to %s, not %s", longestDoctorWatch, f.over)}
	}
	o := doctor.Options{Sidecars: f.sidecars, Over: f.over, Address: f.client.address}
	if len(f.sidecars) == 0 || f.client.address != defaultDebugAddress || cmd.Flags().Changed("address") {
		o.Metrics = f.client.metrics
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "examining")
	o.Watching = func() { progress.Update(fmt.Sprintf("watching for %s", f.over)) }
	evidence, err := doctor.Collect(cmd.Context(), o)
	progress.Done()
	if err != nil {
		return err
	}
	report := doctor.Examine(evidence)
	if err := f.out.Print(cmd.OutOrStdout(), report, func(w io.Writer) error { return printDoctor(w, report) }); err != nil {
		return err
	}
	if report.IsIll() {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

// metricsTimeout is longer than for other pages: a control plane that is ill answers late.
const metricsTimeout = time.Minute

// metrics reads the control plane's page for scrapers, Moonsail's or istiod's.
func (c *debugClient) metrics(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	page := c.url("/metrics")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, terminal.UsageError{Err: fmt.Errorf("--address %q is not an address: %w", c.address, err)}
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(page, err)
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, maxDebugAnswer)
	if resp.StatusCode != http.StatusOK {
		return nil, refused(page, resp, body)
	}
	return io.ReadAll(body)
}

func printDoctor(w io.Writer, r *doctor.Report) error {
	s := terminal.StyleFor(w)
	var b strings.Builder
	for _, x := range r.Subjects {
		fmt.Fprintf(&b, "%s %s %s, seen %s\n", x.Kind, x.Version, x.Name, x.Seen)
	}
	for i := range r.Findings {
		x := &r.Findings[i]
		fmt.Fprintf(&b, "\n%s %s  (%s, %s)\n", paintSeverity(s, x.Severity), s.Bold(x.What), x.Check, x.Subject)
		for _, e := range x.Evidence {
			fmt.Fprintf(&b, "      %s\n", e)
		}
		for _, c := range x.Cure {
			fmt.Fprintf(&b, "   -> %s\n", c)
		}
	}
	b.WriteByte('\n')
	for _, x := range r.Subjects {
		var names []string
		for _, h := range r.Well {
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
	case doctor.Ill:
		return s.Bad(text)
	case doctor.Risk:
		return s.Warn(text)
	}
	return text
}
