package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// proxiesFlags are those of "moonsail proxies".
type proxiesFlags struct {
	client  debugClient
	out     terminal.Output
	workers bool
}

// NewProxiesCommand is "moonsail proxies".
func NewProxiesCommand() *cobra.Command {
	var f proxiesFlags
	cmd := &cobra.Command{
		Use:     "proxies [NAME]",
		Aliases: []string{"proxy-status", "ps"}, // istioctl's
		Short:   "List connected proxies with their state per type of resource",
		Long:    proxiesLong, Example: proxiesExample,
		Args: cobra.MaximumNArgs(1),
		RunE: f.run,
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	f.client.addLocalFlag(cmd)
	cmd.Flags().BoolVar(&f.workers, "workers", false, "what the worker threads of their Envoys do")
	cmd.ValidArgsFunction = f.client.proxyNames(1)
	return cmd
}

const (
	proxiesLong = `Lists the connected proxies, or one of them by name, name.namespace or node id. STATUS
sums up: SYNCED, BEHIND (some published change is not accepted, and since when), or NACKED
(it has refused resources, which are held back). For each type of resource (CDS clusters, EDS endpoints, LDS listeners, RDS route
configurations, VHDS virtual hosts) the state is one of

  SYNCED      the proxy has accepted everything that was sent, at that revision
  SENT 1.2s   a response is on its way, and has not been answered for so long
  WAITING     something must be accepted first, so that no traffic is lost
  NACKED 1    the proxy has refused so many resources; the reason is in the details
  -           the proxy has not asked for any

Where there are several control planes, the proxies are those of all: CONTROL PLANE is the
address of whose a proxy is, and one that does not answer is named. Revisions are each control
plane's own. --local lists the proxies of the control plane at --address alone.

With --workers: the worker threads of the Envoys of that control plane's proxies, by their agents:
connections and CPU of each. NOTE says where one worker has much more to do than the others.`
	proxiesExample = `  moonsail proxies
  moonsail proxies --local                  # of several control planes, the proxies of this one
  moonsail proxies --workers
  moonsail proxies reviews-v1-1.shop -o yaml
  moonsail proxies -o json | jq '.proxies[].name'`
)

func (f *proxiesFlags) run(cmd *cobra.Command, args []string) error {
	switch {
	case f.workers:
		return f.listWorkers(cmd, args)
	case len(args) == 1:
		return f.one(cmd, args[0])
	}
	return f.all(cmd)
}

func (f *proxiesFlags) all(cmd *cobra.Command) error {
	var list debug.ProxyList
	if err := f.client.get(cmd.Context(), f.client.scoped("/debug/proxies"), &list); err != nil {
		return err
	}
	return f.out.Print(cmd.OutOrStdout(), list, func(w io.Writer) error { return printProxies(w, list) })
}

func (f *proxiesFlags) one(cmd *cobra.Command, name string) error {
	var detail debug.ProxyDetail
	if err := f.client.getOf(cmd.Context(), "/debug/proxies/", name, f.client.scoped(""), &detail); err != nil {
		return err
	}
	return f.out.Print(cmd.OutOrStdout(), detail, func(w io.Writer) error { return printProxy(w, detail) })
}

// proxyColumns are the types as people see them: two route strategies are one column, and
// what few ask for is one only where a proxy asks for some.
func proxyColumns(list []server.ProxyState) []string {
	scoped := slices.ContainsFunc(list, func(p server.ProxyState) bool { return p.Strategy == server.RoutesScoped })
	asked := func(of resource.Type) bool {
		return slices.ContainsFunc(list, func(p server.ProxyState) bool {
			return slices.ContainsFunc(p.Types, func(t server.TypeState) bool { return t.Type == of.String() })
		})
	}
	shown := func(t resource.Type) bool {
		switch t {
		case resource.Scope:
			return scoped
		case resource.Secret, resource.NameTable, resource.Extension, resource.Bootstrap:
			return asked(t)
		}
		return true
	}
	var names []string
	for _, t := range resource.Types {
		if n := t.Short; shown(t.Type) && (len(names) == 0 || names[len(names)-1] != n) {
			names = append(names, n)
		}
	}
	return names
}

func printProxies(w io.Writer, list debug.ProxyList) error {
	style := terminal.StyleFor(w)
	if len(list.Proxies) == 0 {
		if _, err := fmt.Fprintln(w, "no proxies are connected"); err != nil {
			return err
		}
		return printUntold(w, style, list.Others)
	}
	columns := proxyColumns(list.Proxies)
	headings := append(append([]string{"NAME", "NAMESPACE", "STATUS"}, columns...), "PROTOCOL", "ROUTES", "SETTLED", "CONNECTED", "ENVOY")
	if len(list.Others) > 0 {
		headings = append(headings, "CONTROL PLANE")
	}
	t := terminal.NewTable(headings...) // of longer rows the rest is not shown
	for _, p := range list.Proxies {
		row := []string{p.Name, p.Namespace, proxyStatus(style, &p, list.Now)}
		for _, c := range columns {
			row = append(row, columnState(style, &p, c, list.Now))
		}
		t.Row(append(row, p.Protocol, string(p.Strategy), fmt.Sprint(p.Settled), age(list.Now, p.Connected), orDash(p.Version), whose(p.ControlPlane))...)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	return printUntold(w, style, list.Others)
}

// proxyStatus sums up all types: NACKED, BEHIND since when, or SYNCED. The gravest wins.
func proxyStatus(style terminal.Style, p *server.ProxyState, now time.Time) string {
	held := 0
	for i := range p.Types {
		held += len(p.Types[i].Held)
	}
	switch {
	case held > 0:
		return style.Bad(fmt.Sprintf("NACKED %d", held))
	case p.Owed > 0 && !p.BehindSince.IsZero():
		return style.Warn("BEHIND " + age(now, p.BehindSince))
	case p.Owed > 0:
		return style.Warn("BEHIND")
	}
	return style.Good("SYNCED")
}

// columnState is the state of the type with that name; where two rows share a name,
// that of the one in use.
func columnState(style terminal.Style, p *server.ProxyState, column string, now time.Time) string {
	state := typeState(style, nil, now)
	for i := range p.Types {
		if t := &p.Types[i]; t.Type == column && inUse(t) {
			state = typeState(style, t, now)
		}
	}
	return state
}

// inUse tells whether the proxy has asked for anything of a type.
func inUse(t *server.TypeState) bool {
	return t.Wildcard || t.Subscribed > 0 || t.Sent > 0 || len(t.Held) > 0
}

// typeState is a cell: SYNCED, SENT and for how long, WAITING, NACKED or -. The gravest wins.
func typeState(style terminal.Style, t *server.TypeState, now time.Time) string {
	switch {
	case t == nil:
		return style.Dim("-")
	case len(t.Held) > 0:
		return style.Bad(fmt.Sprintf("NACKED %d", len(t.Held)))
	case !t.InFlightSince.IsZero():
		return style.Warn("SENT " + age(now, t.InFlightSince))
	case t.Waiting != "":
		return style.Warn("WAITING")
	}
	return style.Good("SYNCED")
}

func printProxy(w io.Writer, d debug.ProxyDetail) error {
	p := &d.Proxy
	fmt.Fprintf(w, "%s.%s\n  node id    %s\n  peer       %s\n  connected  %s ago, %s, routes by %s\n",
		p.Name, p.Namespace, p.ID, p.Peer, age(d.Now, p.Connected), p.Protocol, p.Strategy)
	if p.ControlPlane != "" {
		fmt.Fprintf(w, "  with       the control plane %s, whose the revisions are\n", p.ControlPlane)
	}
	if p.Version != "" || d.Node != nil && d.Node.IstioVersion != "" {
		fmt.Fprintf(w, "  version    Envoy %s", orDash(p.Version))
		if d.Node != nil {
			fmt.Fprintf(w, ", Istio %s", orDash(d.Node.IstioVersion))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "  status     %s%s\n  settled    revision %d\n", proxyStatus(terminal.StyleFor(w), p, d.Now), owedText(p), p.Settled)
	for i, name := range p.Tables {
		fmt.Fprintf(w, "  table %d    %s\n", i+1, name)
	}
	fmt.Fprintln(w)
	t := terminal.NewTable("TYPE", "STATE", "SUBSCRIBED", "SENT", "ACKED", "NOTE")
	style := terminal.StyleFor(w)
	for i := range p.Types {
		s := &p.Types[i]
		if !inUse(s) {
			continue
		}
		note := s.Waiting
		if note != "" {
			note = "waits for " + note
		}
		t.Row(s.Type, typeState(style, s, d.Now), subscribed(s), fmt.Sprint(s.Sent), fmt.Sprint(s.ACKed), note)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	return printHeld(w, style, p)
}

// owedText says how far behind a proxy is.
func owedText(p *server.ProxyState) string {
	text := ""
	if p.Owed > 0 {
		text = fmt.Sprintf(": %s not accepted, revision %d the first", plural(p.Owed, "revision"), p.OldestOwed)
	}
	if p.Unread {
		text += "; it does not read what it is sent"
	}
	return text
}

func subscribed(s *server.TypeState) string {
	switch {
	case s.Wildcard && s.Subscribed > 0:
		return fmt.Sprintf("* and %d", s.Subscribed)
	case s.Wildcard:
		return "*"
	}
	return fmt.Sprint(s.Subscribed)
}

// printHeld explains what the proxy has refused.
func printHeld(w io.Writer, style terminal.Style, p *server.ProxyState) error {
	for _, t := range p.Types {
		for _, h := range t.Held {
			if _, err := fmt.Fprintf(w, "\n%s %s %s (version %s), held back until it differs:\n  %s\n",
				style.Bad("refused"), t.Type, h.Name, h.Version, h.Message); err != nil {
				return err
			}
		}
	}
	return nil
}
