package inspect

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// whyFlags are the values of the flags of `moonsail why`.
type whyFlags struct {
	client    client.ControlPlane
	out       terminal.Output
	method    string
	headers   []string
	principal string // the name in the certificate of a gateway's client
}

func newWhyCommand() *cobra.Command {
	var f whyFlags
	cmd := &cobra.Command{
		Use:   "why FROM TO",
		Short: "Explain what decides a request: listener, route, cluster, endpoints",
		Long: `Explain what the mesh does with a request, and why: the listener and filter chain of the calling proxy,
the route, the clusters and endpoints with their shares, and the policies; then the same at the
sidecars of the endpoints; and the objects that decide, with file and line.

The first line is the verdict: which endpoints get the request, or which proxy refuses it, and for
which reason or object. -o json has it as "verdict".

FROM is a connected proxy, as name.namespace, a name with -n, a node id, or TYPE/NAME: pod/NAME,
deployment/NAME, service/NAME. TO is a URL as an application would use it, with the scheme http,
http2, grpc, tcp, tls or https. As for the application, a host without a namespace is one of the
namespace of FROM. No request is made: the answer comes from the configuration that the control plane
has for the proxies.`,
		Example: `  # Explain a request
  moonsail why web-1.shop http://reviews:9080/ratings

  # Name the namespace, and a Deployment
  moonsail why -n shop deploy/web http://reviews:9080/ratings

  # Add a header
  moonsail why web-1.shop reviews:9080/ratings -H 'end-user: jason'

  # Explain a TCP connection
  moonsail why web-1.shop tcp://mysql.data:3306 -o yaml`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd)
	f.client.AddProxyNamespace(cmd, 1)
	cmd.Flags().StringVarP(&f.method, "method", "X", "", "`METHOD` of the request (default GET; POST for grpc)")
	cmd.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "`HEADER` of the request, as 'name: value'; may be repeated with other names")
	cmd.Flags().StringVar(&f.principal, "principal", "", "`NAME` in the certificate of a gateway's client, for example spiffe://cluster.local/ns/shop/sa/web")
	cmd.ValidArgsFunction = f.complete
	return cmd
}

// complete completes proxies, and then hosts of services, after the scheme if one is typed.
func (f *whyFlags) complete(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return f.client.ProxyNames(1)(cmd, args, typed)
	}
	list, err := f.client.Objects(cmd.Context(), model.KindService)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	scheme, _, typedScheme := strings.Cut(typed, "://")
	var out []cobra.Completion
	for _, o := range list {
		host := o.Name + "." + o.Namespace
		switch {
		case typedScheme:
			out = append(out, scheme+"://"+host)
		case typed != "" && strings.HasPrefix("http://", typed):
			out = append(out, host, "http://"+host)
		default:
			out = append(out, host)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (f *whyFlags) run(cmd *cobra.Command, from, to string) error {
	for _, h := range f.headers {
		if name, _, ok := strings.Cut(h, ":"); !ok || name == "" {
			return terminal.UsageError{Err: fmt.Errorf("--header %q: use 'name: value'", h)}
		}
	}
	q := url.Values{"to": {to}, "method": {f.method}, "header": f.headers, "principal": {f.principal}}
	w := &explain.Why{}
	if err := f.client.GetProxy(cmd.Context(), "/debug/why/", from, "?"+q.Encode(), w); err != nil {
		return err
	}
	return f.out.Print(cmd.OutOrStdout(), w, func(out io.Writer) error { return printWhy(cmd, out, w) })
}

func printWhy(cmd *cobra.Command, out io.Writer, w *explain.Why) error {
	s := terminal.StyleFor(out)
	var b strings.Builder
	title, first := fmt.Sprintf("%s calls %s %s", w.From, w.Method, w.URL), "leaves"
	if w.Gateway {
		title, first = fmt.Sprintf("%s receives %s %s", w.From, w.Method, w.URL), "selects"
	}
	printVerdict(&b, s, w.Verdict)
	fmt.Fprintf(&b, "%s\n", s.Bold(title))
	if w.Unknown {
		fmt.Fprintf(&b, "  no service of the mesh is %s: %s stands for an address of it\n", w.Host, w.Address)
	} else {
		fmt.Fprintf(&b, "  %s is %s\n", w.Host, w.Address)
	}
	for _, n := range w.Notes {
		fmt.Fprintf(&b, "  %s %s\n", s.Warn("note:"), terminal.Hint(cmd, n))
	}
	if w.HasNoWay() {
		_, err := io.WriteString(out, b.String())
		return err
	}
	printPassage(&b, s, first, w.Outbound)
	for _, p := range w.Inbound {
		printPassage(&b, s, "arrives at", p)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// printVerdict prints what becomes of the call, before the way there. A control plane of an earlier version sends no verdict.
func printVerdict(b *strings.Builder, s terminal.Style, v *explain.CallVerdict) {
	if v == nil {
		return
	}
	style := s.Good
	for i := range v.Ends {
		switch e := &v.Ends[i]; {
		case e.Outcome == explain.Closed || e.Outcome == explain.Unresolved || e.Status >= http.StatusBadRequest || strings.HasPrefix(e.Answer, "gRPC"):
			style = s.Bad
		}
	}
	fmt.Fprintf(b, "=> %s\n", style(v.Text))
	for _, r := range v.Reasons {
		fmt.Fprintf(b, "   %s\n", terminal.Escape(r))
	}
	b.WriteByte('\n')
}

func printPassage(b *strings.Builder, s terminal.Style, verb string, p *explain.Passage) {
	r := p.Result
	fmt.Fprintf(b, "\n%s\n", s.Bold(verb+" "+p.Proxy))
	line := func(label, value, note string) {
		if value != "" {
			fmt.Fprintf(b, "  %-13s %s%s\n", label, value, s.Dim(spaced(note)))
		}
	}
	line("listener", r.Listener, "")
	line("mutual TLS", p.Accepts, "")
	line("principal", terminal.Escape(p.Principal), "")
	line("filter chain", r.Chain, "")
	line("routes", r.RouteConfig, "")
	line("virtual host", r.VirtualHost, "")
	line("route", cmp.Or(r.Route, map[bool]string{true: "(unnamed)"}[r.VirtualHost != "" && (len(r.Upstreams) > 0 || r.Status != 404)]), objectOf(p, r.RouteOrigin))
	line("policy", strings.Join(routePolicies(r), "; "), "")
	for i := range r.Decisions {
		line("decision", decisionText(&r.Decisions[i]), "")
	}
	for i := range r.Upstreams {
		printUpstream(b, s, p, &r.Upstreams[i])
	}
	line("path", r.Path, "")
	line("authority", r.Authority, "")
	switch {
	case r.Closed != "":
		fmt.Fprintf(b, "  %s %s\n", s.Bad("closed:"), r.Closed)
	case r.Status != 0:
		fmt.Fprintf(b, "  %s %s\n", s.Warn("the proxy answers:"), strings.Join(strings.Fields(fmt.Sprint(r.StatusText(), " ", r.Reason, " ", r.Location)), " "))
	}
	if len(p.Objects) > 0 {
		fmt.Fprintf(b, "  decided by\n")
		for _, o := range p.Objects {
			fmt.Fprintf(b, "    %s: %s%s\n", o.Object, o.Decides, s.Dim(spaced(o.Origin)))
			if o.Error != nil {
				fmt.Fprintf(b, "      %s\n", s.Warn(refusedText(o.Error, o.Partly)+": "+messageOf(*o.Error)))
			}
		}
	}
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return "  " + s
}

// objectOf returns the object of a path in Istio's metadata, if the passage has it.
func objectOf(p *explain.Passage, path string) string {
	for _, o := range p.Objects {
		if path != "" && strings.HasSuffix(path, "/"+o.Object.Namespace+"/"+kebab(o.Object.Kind)+"/"+o.Object.Name) {
			return o.Object.String()
		}
	}
	return ""
}

// kebab returns "virtual-service".
func kebab(k model.Kind) string {
	var b strings.Builder
	for i, r := range string(k) {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// routePolicies returns what a route does besides choosing clusters.
func routePolicies(r *simulate.Result) []string {
	var out []string
	if r.Timeout != "" {
		out = append(out, "timeout "+r.Timeout)
	}
	if r.Retry != nil {
		text := fmt.Sprintf("retries %d on %s", r.Retry.Attempts, r.Retry.On)
		if r.Retry.PerTry != "" {
			text += ", each try " + r.Retry.PerTry
		}
		out = append(out, text)
	}
	if f := r.Fault; f != nil {
		if f.Delay != "" {
			out = append(out, fmt.Sprintf("delay %s to %s %%", f.Delay, number(f.DelayPercent)))
		}
		if f.Abort != 0 || f.AbortGRPC != nil {
			out = append(out, fmt.Sprintf("abort %d to %s %%", f.Abort, number(f.AbortPercent)))
		}
	}
	for _, m := range r.Mirrors {
		out = append(out, fmt.Sprintf("mirror %s %% to %s", number(m.Percent), m.Cluster))
	}
	if len(r.Hash) > 0 {
		out = append(out, "hash of "+strings.Join(r.Hash, ", "))
	}
	if r.Tunnel != "" {
		out = append(out, "tunnel by "+r.Tunnel)
	}
	if r.CORS != nil {
		out = append(out, fmt.Sprintf("CORS allowed: %t", r.CORS.Allowed))
	}
	return out
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// shownEndpoints bounds the endpoints that are listed for a cluster.
const shownEndpoints = 5

func printUpstream(b *strings.Builder, s terminal.Style, p *explain.Passage, u *simulate.Upstream) {
	fmt.Fprintf(b, "  %-13s %s  %s %%%s\n", "cluster", u.Cluster, number(u.Percent), s.Dim(spaced(objectOf(p, u.Origin))))
	if policies := clusterPolicies(u); len(policies) > 0 {
		fmt.Fprintf(b, "  %-13s %s\n", "  policy", strings.Join(policies, "; "))
	}
	used := slices.DeleteFunc(slices.Clone(u.Endpoints), func(e simulate.Endpoint) bool { return e.Percent == 0 })
	for _, e := range used[:min(len(used), shownEndpoints)] {
		note := strings.Join(slices.DeleteFunc([]string{e.Health, e.Locality}, func(s string) bool { return s == "" }), ", ")
		fmt.Fprintf(b, "  %-13s %s  %s %%%s\n", "  endpoint", e.Address, number(e.Percent), s.Dim(spaced(note)))
	}
	if more := len(used) - shownEndpoints; more > 0 {
		fmt.Fprintf(b, "  %-13s and %d more\n", "", more)
	}
	if unused := len(u.Endpoints) - len(used); unused > 0 {
		fmt.Fprintf(b, "  %-13s %d more get no requests: unhealthy, draining or of a lower priority\n", "", unused)
	}
	if len(u.Endpoints) == 0 && u.Discovery != "ORIGINAL_DST" {
		fmt.Fprintf(b, "  %-13s %s\n", "  endpoint", s.Bad("none"))
	}
}

// tlsText describes TLS to a cluster, and the number of its endpoints with plain text.
func tlsText(u *simulate.Upstream) string {
	out := "TLS to " + cmp.Or(u.TLS.SNI, "no SNI")
	if u.TLS.Cert != "" {
		out = "mutual " + out
	}
	plain := 0
	for _, e := range u.Endpoints {
		if e.Plain {
			plain++
		}
	}
	if plain > 0 {
		out += fmt.Sprintf(" (%d of %d endpoints: plain text)", plain, len(u.Endpoints))
	}
	return out
}

// ownPools explains a limit of connections. All workers share the limit, but each has its own pools, and a pool without
// a connection may open one to an endpoint whatever the limit.
const ownPools = " (of all workers together; beyond that, each may have one to each endpoint)"

// clusterPolicies returns what a cluster does with requests.
func clusterPolicies(u *simulate.Upstream) []string {
	out := []string{u.Discovery}
	if u.LB != "" && u.LB != "CLUSTER_PROVIDED" {
		out = append(out, u.LB)
	}
	if u.Protocol != "" {
		out = append(out, u.Protocol)
	}
	if u.TLS != nil {
		out = append(out, tlsText(u))
	}
	if l := u.Limits; l != nil {
		for _, n := range []struct {
			name   string
			count  uint32
			beside string
		}{{"connections", l.Connections, ownPools}, {"pending", l.Pending, ""}, {"requests", l.Requests, ""}, {"retries", l.Retries, ""}} {
			if n.count > 0 {
				out = append(out, fmt.Sprintf("at most %d %s%s", n.count, n.name, n.beside))
			}
		}
	}
	if u.Outlier != nil {
		out = append(out, "outlier detection")
	}
	return out
}

// decisionText describes the decision of one policy.
func decisionText(d *simulate.Decision) string {
	var b strings.Builder
	b.WriteString(d.Action)
	if d.Policy != "" {
		fmt.Fprintf(&b, " %s%s,", d.Policy, d.RuleText())
	}
	switch {
	case len(d.Among) > 0:
		fmt.Fprintf(&b, " refuses it: no rule of %s matches", strings.Join(d.Among, ", "))
	case d.Refuses:
		b.WriteString(" refuses it")
	case d.Action == "AUDIT":
		b.WriteString(" marks it")
	case d.Asks != "":
		fmt.Fprintf(&b, " asks %s, assumed to consent", d.Asks)
	default:
		b.WriteString(" matches it")
	}
	if d.Cause != "" {
		b.WriteString(": " + d.Cause)
	}
	if d.DryRun {
		b.WriteString(" (dry run: it has no effect)")
	}
	return b.String()
}
