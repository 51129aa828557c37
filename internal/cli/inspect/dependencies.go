package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/diagnose/doctor"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// dependenciesFlags are the values of the flags of `moonsail dependencies`.
type dependenciesFlags struct {
	client      client.ControlPlane
	out         client.ListOutput
	namespaces  client.Namespaces
	callersOf   string
	byNamespace bool
	failing     bool
}

// Formats of dependencies, in addition to those of all lists.
const (
	formatGraph         = "graph"
	formatSidecar       = "sidecar"
	formatNetworkPolicy = "networkpolicy"
)

const dependenciesHelp = `List which services workloads call: those of one workload, of a namespace, or of all. --callers-of lists
the workloads that call a service. A workload is named as its Deployment, or by one of its Pods, with or without the type.

The control plane learns from the metrics of connected sidecars, of which it reads one for each workload
every minute, and from the clusters that sidecars ask for on demand. What is not called for 30 days is
forgotten. Calls to hosts that are no services of the mesh are not learned.

  PORTS      of the service; * if the sidecars' metrics alone name it, which have no port
  RATE       requests or TCP connections for each second, estimated from the proxies that were read;
             - if it is unknown
  ERRORS     share of the last requests that had no answer, an HTTP status from 500, or a gRPC status of
             server errors; of TCP, connections that failed; - without requests. --failing and
             -o wide add FAILURES: the status and Envoy's response flags, such as "503 UH", and their number
  MTLS       mutual TLS of the last requests: yes, no, or partly; - if none reached a server
  LAST CALL  how long ago, up to an hour too much after a restart of the control plane
  SINCE      how long ago the call was first seen

-o sidecar writes Sidecar resources that limit the configuration of workloads to what they call, one for
each workload or, with --by-namespace, for each namespace. They forbid no call. -o networkpolicy writes
NetworkPolicies, which allow the same calls only, DNS and the control plane. Comments in both name what cannot be expressed. Check them before you apply
them: a call that was not made for 30 days is not in them. Neither is written unless all control planes
answer with all they know.

The last requests are those between the last two readings of a proxy: of a minute, or of a minute for
each proxy of the workload. 'moonsail doctor' reports calls that fail often.

-o graph writes a graph for Graphviz, and -o name the names of the workloads.

All control planes are asked, and those that do not answer are named. --local asks one alone.`

func newDependenciesCommand() *cobra.Command {
	var f dependenciesFlags
	cmd := &cobra.Command{
		Use:     "dependencies [WORKLOAD]",
		Aliases: []string{"deps"},
		Short:   "List which services workloads call",
		Long:    dependenciesHelp,
		Example: `  # List what all workloads call
  moonsail dependencies

  # List what a workload calls, by the name of its Deployment or of a Pod
  moonsail dependencies web.shop

  # List who calls a service
  moonsail dependencies --callers-of reviews.shop

  # List calls that fail, and how
  moonsail dependencies --failing

  # Limit the workloads of a namespace to what they call
  moonsail dependencies -n shop -o sidecar > sidecars.yaml
  moonsail dependencies web.shop -o networkpolicy | kubectl apply --dry-run=server -f -

  # Draw a graph
  moonsail dependencies -n shop -o graph | dot -Tsvg > shop.svg`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.run,
	}
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd, formatGraph, formatSidecar, formatNetworkPolicy)
	f.client.AddLocalFlag(cmd)
	f.namespaces.AddFlags(cmd, &f.client, "workloads")
	cmd.Flags().StringVar(&f.callersOf, "callers-of", "", "list the workloads that call this `SERVICE`: a name, name.namespace or host")
	cmd.Flags().BoolVar(&f.byNamespace, "by-namespace", false, "with -o sidecar: write one for each namespace, with what its workloads call")
	cmd.Flags().BoolVar(&f.failing, "failing", false, "list only calls of which some failed in the last minutes")
	cmd.ValidArgsFunction = f.complete
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("callers-of", f.completeCalled)
	return cmd
}

func (f *dependenciesFlags) run(cmd *cobra.Command, args []string) error {
	var workload string
	if len(args) == 1 {
		workload = client.WorkloadName(args[0])
	}
	switch {
	case f.byNamespace && !f.out.Is(formatSidecar):
		return terminal.UsageError{Err: errors.New("--by-namespace: is for -o sidecar")}
	case f.byNamespace && workload != "":
		return terminal.UsageError{Err: errors.New("--by-namespace: covers all workloads of a namespace: leave out WORKLOAD")}
	case f.callersOf != "" && (f.out.Is(formatSidecar) || f.out.Is(formatNetworkPolicy)):
		return terminal.UsageError{Err: errors.New("--callers-of: the object would allow only calls to this service: leave it out with -o sidecar and -o networkpolicy")}
	case f.failing && (f.out.Is(formatSidecar) || f.out.Is(formatNetworkPolicy)):
		return terminal.UsageError{Err: errors.New("--failing: the object would allow only calls that fail: leave it out with -o sidecar and -o networkpolicy")}
	}
	report, err := f.report(cmd.Context(), workload)
	if err != nil {
		return err
	}
	if len(report.Workloads) == 0 && workload+f.callersOf != "" {
		return f.unknown(cmd.Context(), workload)
	}
	measured := isMeasured(report)
	if f.failing {
		keepFailing(report)
	}
	w := cmd.OutOrStdout()
	if f.out.Is(formatSidecar) || f.out.Is(formatNetworkPolicy) {
		if err := isWhole(report); err != nil {
			return err
		}
	}
	switch {
	case f.out.Is(formatGraph):
		err = printGraph(w, report)
	case f.out.Is(formatSidecar):
		err = printManifests(w, sidecarsOf(report, f.byNamespace))
	case f.out.Is(formatNetworkPolicy):
		err = printManifests(w, networkPoliciesOf(report))
	default:
		err = f.out.Print(w, client.List{
			Value: report, Names: func() []string { return namesOf(report) },
			Table: func(w io.Writer) error { return f.print(w, report, measured) },
		})
		if !f.out.IsPart() {
			return err // the others have the silent control planes
		}
	}
	if err != nil {
		return err
	}
	return printIncomplete(cmd.ErrOrStderr(), terminal.StyleFor(cmd.ErrOrStderr()), report.Others)
}

// isWhole returns an error if a report lacks calls: objects made of it would forbid them.
func isWhole(r *dependencies.Report) error {
	const objects = "no objects are written: they would forbid calls that are not in the report"
	for _, o := range r.Others {
		if o.Silent != "" {
			return &terminal.UserError{What: objects, Where: fmt.Sprintf("control plane %s: no answer: %s", o.ControlPlane, o.Silent),
				Next: "repeat the command when it answers, or take what one control plane knows with --local"}
		}
	}
	if r.LeftOut > 0 || slices.ContainsFunc(r.Others, func(o explain.PeerQuery) bool { return o.LeftOut > 0 }) {
		return &terminal.UserError{What: objects, Where: "the report, which exceeds the bound of answers",
			Next: "choose a namespace with -n, or a workload"}
	}
	return nil
}

// isMeasured reports whether calls of any proxy were measured.
func isMeasured(r *dependencies.Report) bool {
	return slices.ContainsFunc(r.Workloads, func(w dependencies.WorkloadReport) bool {
		return slices.ContainsFunc(w.Calls, func(c dependencies.CallReport) bool { return c.Rate != nil })
	})
}

// keepFailing removes calls of which none failed.
func keepFailing(r *dependencies.Report) {
	kept := []dependencies.WorkloadReport{}
	for _, w := range r.Workloads {
		w.Calls = slices.DeleteFunc(slices.Clone(w.Calls), func(c dependencies.CallReport) bool { return c.Measured == nil || c.Measured.Errors == 0 })
		if len(w.Calls) > 0 {
			kept = append(kept, w)
		}
	}
	r.Workloads = kept
}

func (f *dependenciesFlags) report(ctx context.Context, workload string) (*dependencies.Report, error) {
	query := url.Values{}
	for name, value := range map[string]string{"namespace": f.namespaces.Namespace, "workload": workload, "callers-of": f.callersOf} {
		if value != "" {
			query.Set(name, value)
		}
	}
	path := "/debug/dependencies"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	out := &dependencies.Report{}
	return out, f.client.Get(ctx, f.client.Scoped(path), out)
}

// unknown is the error of a workload or service of which no calls are known.
func (f *dependenciesFlags) unknown(ctx context.Context, workload string) error {
	name, names := workload, workloadNames
	what := fmt.Sprintf("workload %q: no calls are known", workload)
	if workload == "" {
		name, names = f.callersOf, calledNames
		what = fmt.Sprintf("service %q: no callers are known", f.callersOf)
	}
	var known []string
	if workload == "" {
		known = f.serviceNames(ctx)
	}
	f.callersOf = ""
	if all, err := f.report(ctx, ""); err == nil {
		known = append(known, names(all)...)
	}
	if !slices.Contains(known, name) {
		what += spelling.DidYouMean(name, known)
	}
	return &terminal.UserError{What: what, Next: "list all with 'moonsail dependencies'; calls of sidecars' metrics appear after a minute or two"}
}

// serviceNames names the Kubernetes Services of the mesh, also those that no workload calls; none if the control plane does not
// answer.
func (f *dependenciesFlags) serviceNames(ctx context.Context) (out []string) {
	list, err := f.client.Objects(ctx, model.KindService)
	if err != nil {
		return nil
	}
	for _, s := range list {
		out = append(out, s.Name, s.Name+"."+s.Namespace)
	}
	return out
}

// namesOf names the workloads of a report.
func namesOf(r *dependencies.Report) (out []string) {
	for i := range r.Workloads {
		out = append(out, r.Workloads[i].Name+"."+r.Workloads[i].Namespace)
	}
	return out
}

func workloadNames(r *dependencies.Report) (out []string) {
	for i := range r.Workloads {
		out = append(out, r.Workloads[i].Name, r.Workloads[i].Name+"."+r.Workloads[i].Namespace)
	}
	return out
}

func calledNames(r *dependencies.Report) (out []string) {
	for i := range r.Workloads {
		for j := range r.Workloads[i].Calls {
			out = append(out, calledName(&r.Workloads[i].Calls[j]))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// calledName is the short name of a called service: that of a Kubernetes Service, or the host.
func calledName(c *dependencies.CallReport) string {
	if c.Service.Kind == model.KindService {
		return c.Service.Name + "." + c.Service.Namespace
	}
	return string(c.Host)
}

// calledURL is a URL of a called service for `moonsail why`.
func calledURL(c *dependencies.CallReport) string {
	scheme, port := "http", uint32(0)
	for _, p := range c.Service.Ports {
		if len(c.Ports) > 0 && p.Number != c.Ports[0] {
			continue
		}
		port = p.Number
		switch p.Protocol {
		case model.ProtocolHTTP2, model.ProtocolGRPC, model.ProtocolTLS, model.ProtocolHTTPS, model.ProtocolTCP:
			scheme = strings.ToLower(string(p.Protocol))
		}
		break
	}
	if len(c.Ports) > 0 {
		port = c.Ports[0]
	}
	to := scheme + "://" + calledName(c)
	if port != 0 {
		to += fmt.Sprintf(":%d", port)
	}
	return to + "/"
}

func (f *dependenciesFlags) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	report, err := f.report(cmd.Context(), "")
	if len(args) > 0 || err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range report.Workloads {
		out = append(out, report.Workloads[i].Name+"."+report.Workloads[i].Namespace)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (f *dependenciesFlags) completeCalled(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	f.callersOf = ""
	report, err := f.report(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return calledNames(report), cobra.ShellCompDirectiveNoFileComp
}

// nothing describes a report without calls.
func (f *dependenciesFlags) nothing(measured bool) string {
	switch {
	case !f.failing:
		return "no calls are known"
	case !measured:
		return "no calls were measured yet: the proxies are read twice, a minute apart"
	}
	return "no call failed in the last minutes"
}

func (f *dependenciesFlags) print(w io.Writer, r *dependencies.Report, measured bool) error {
	style := terminal.StyleFor(w)
	if len(r.Workloads) == 0 {
		if _, err := fmt.Fprintln(w, f.nothing(measured)); err != nil {
			return err
		}
		return printIncomplete(w, style, r.Others)
	}
	headings := []string{"WORKLOAD", "NAMESPACE", "CALLS", "PORTS", "RATE", "ERRORS", "MTLS", "LAST CALL", "SINCE"}
	if f.failing || f.out.IsWide() {
		headings = append(headings, "FAILURES")
	}
	if f.out.IsWide() {
		headings = append(headings, "SERVICE ACCOUNT", "PROXIES", "SUBSETS", "HOST")
	}
	t := terminal.NewTable(headings...)
	for i := range r.Workloads {
		from := &r.Workloads[i]
		for j := range from.Calls {
			c := &from.Calls[j]
			to := calledName(c)
			if c.Service.Kind == "" {
				to += style.Warn(" (gone)")
			}
			row := []string{from.Name, from.Namespace, to, portsText(c.Ports), rateText(c.Rate), errorsText(style, c.Measured), mutualText(style, c.Measured), since(r.Now, c.Last), since(r.Now, c.First)}
			if f.failing || f.out.IsWide() {
				row = append(row, failuresText(c.Measured))
			}
			if f.out.IsWide() {
				row = append(row, from.ServiceAccount, strconv.Itoa(from.Proxies), terminal.OrDash(strings.Join(c.Subsets, ",")), string(c.Host))
			}
			t.Row(row...)
		}
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(w, "%s left out: choose a namespace or a workload\n", terminal.Count(r.LeftOut, "workload"))
	}
	return printIncomplete(w, style, r.Others)
}

func portsText(ports []uint32) string {
	if len(ports) == 0 {
		return "*"
	}
	var out []string
	for _, p := range ports {
		out = append(out, strconv.FormatUint(uint64(p), 10))
	}
	return strings.Join(out, ",")
}

func rateText(rate *float64) string {
	switch {
	case rate == nil:
		return "-"
	case *rate >= 10:
		return fmt.Sprintf("%.0f/s", *rate)
	}
	return fmt.Sprintf("%.2g/s", *rate)
}

// errorsText is the share of failed requests.
func errorsText(s terminal.Style, m *dependencies.Measured) string {
	switch {
	case m == nil || m.Requests == 0:
		return "-"
	case m.Errors == 0:
		return "0%"
	case m.ErrorShare < 0.01:
		return s.Warn("<1%")
	case m.ErrorShare > doctor.FailingFrom:
		return s.Bad(fmt.Sprintf("%.0f%%", 100*m.ErrorShare))
	}
	return s.Warn(fmt.Sprintf("%.0f%%", 100*m.ErrorShare))
}

func mutualText(s terminal.Style, m *dependencies.Measured) string {
	switch {
	case m == nil || m.TLS == "":
		return "-"
	case m.TLS == dependencies.MutualAll:
		return string(m.TLS)
	}
	return s.Warn(string(m.TLS))
}

// failuresText lists the kinds of failures with their numbers, the most frequent first.
func failuresText(m *dependencies.Measured) string {
	if m == nil {
		return "-"
	}
	return terminal.OrDash(strings.Join(failureTexts(m), ", "))
}

func failureTexts(m *dependencies.Measured) (out []string) {
	for _, kind := range m.Kinds() {
		out = append(out, fmt.Sprintf("%s (%.0f)", kind, m.Failures[kind]))
	}
	return out
}

// since returns an age with at most two units: 12s, 5m, 3h20m, 4d2h.
func since(now, then time.Time) string {
	d := max(0, now.Sub(then))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// printGraph writes a graph in the language of Graphviz.
func printGraph(w io.Writer, r *dependencies.Report) error {
	var b strings.Builder
	b.WriteString("digraph dependencies {\n  rankdir=LR\n")
	drawn := map[string]bool{}
	for i := range r.Workloads {
		from := &r.Workloads[i]
		name := from.Namespace + "/" + from.Name + " (" + from.ServiceAccount + ")"
		fmt.Fprintf(&b, "  %q [shape=box, label=%q]\n", name, from.Name+"\n"+from.Namespace)
		for j := range from.Calls {
			c := &from.Calls[j]
			if !drawn[string(c.Host)] {
				drawn[string(c.Host)] = true
				fmt.Fprintf(&b, "  %q [label=%q]\n", c.Host, calledName(c))
			}
			label := ""
			if c.Rate != nil {
				label = rateText(c.Rate)
			}
			color := ""
			if m := c.Measured; m != nil && m.Errors > 0 {
				label, color = label+", "+errorsText(terminal.Style{}, m)+" errors", ", color=red"
			}
			fmt.Fprintf(&b, "  %q -> %q [label=%q%s]\n", name, c.Host, label, color)
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
