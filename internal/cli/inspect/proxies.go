package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// proxiesFlags are the values of the flags of `moonsail proxies`.
type proxiesFlags struct {
	client     client.ControlPlane
	out        client.ListOutput
	namespaces client.Namespaces
	statuses   []string // of --status
	workers    bool
	certs      bool // --certificates
	watch      bool
	asked      string // the control plane that answers
	istio      bool   // it is called by istioctl's name: print istioctl's columns
}

const proxiesHelp = `List the proxies, or show one by name, name.namespace, node id, or TYPE/NAME as in kubectl (pod/NAME,
deployment/NAME, service/NAME; of several Pods it is the first). STATUS is SYNCED, BEHIND (a change is
not ACKed, and for how long), NACKED (the proxy has refused resources, which are held back), or
DISCONNECTED: its stream has ended, and for how long, but its Pod or endpoint is still there. It may be
stuck, or unable to reach the control plane. Its row has its last state, for an hour at most. For each
type of resource, the state is one of

  SYNCED      the proxy has ACKed everything that was sent
  SENT 1.2s   a response has been waiting for an answer for this time
  WAITING     another resource must be ACKed first, so that no request is lost
  NACKED 1    the proxy has refused this many resources; the details of the proxy have the reason
  LACKS 2     this many resources have changed since the proxy disconnected
  -           the proxy does not subscribe to this type

Types are CDS (clusters), EDS (endpoints), LDS (listeners), RDS (route configurations) and VHDS
(virtual hosts). The view of one proxy also has ODCDS (clusters on demand). PROTOCOL is delta or state-of-the-world xDS. ROUTES is how the proxy gets its routes: rds,
vhds, or scoped (large route configurations are split). SETTLED is a revision: the proxy has ACKed,
or refused, all up to it that concerns it.

With several control planes, the list covers the proxies of all. CONTROL PLANE is the address of the
one that serves the proxy, to which its revisions belong. Control planes that do not answer are named.
--local lists the proxies of one control plane alone.

--status lists only proxies with one of these statuses, or with '!STATUS' all others. -o json and yaml
have it as status. For a list they print an object with "proxies"; for one PROXY, that proxy as "proxy".

--workers lists the worker threads of these proxies' Envoys, with connections and CPU. NOTE reports a
worker with much more to do than the others.

--certificates lists the certificates of these proxies, the one that expires first at the top, as their
agents report them. Agents renew them in time; NOTE has the problem if they cannot.

Called as proxy-status or ps, the command prints istioctl's columns: SYNCED, STALE (not ACKed),
NOT SENT, ERROR (refused) or IGNORED (not subscribed) for each type. RDS includes VHDS. As with istioctl,
the list has connected proxies alone.`

func newProxiesCommand() *cobra.Command {
	var f proxiesFlags
	cmd := &cobra.Command{
		Use:     "proxies [PROXY]",
		Aliases: []string{"proxy-status", "ps"}, // istioctl's
		Short:   "List proxies and their state for each type of resource",
		Long:    proxiesHelp,
		Example: `  # List all proxies
  moonsail proxies

  # Show one proxy
  moonsail proxies reviews-v1-1.shop

  # List proxies that do not have the current configuration, or refuse it
  moonsail proxies --status behind,nacked

  # List the proxies of a namespace that change their state
  moonsail proxies -n shop --watch

  # List certificates, the one that expires first at the top
  moonsail proxies --certificates

  # List worker threads
  moonsail proxies --workers

  # List names
  moonsail proxies -o name
  moonsail proxies -o jsonpath='{.proxies[*].id}'

  # As istioctl
  moonsail proxy-status`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.run,
	}
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd)
	f.client.AddLocalFlag(cmd)
	f.namespaces.AddFlags(cmd, &f.client, "proxies")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "continue, and print each proxy again when its state changes")
	cmd.Flags().StringSliceVar(&f.statuses, "status", nil, "list only proxies with these `STATUSES`, or with '!' not with them: "+strings.Join(statusNames(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("status", completeStatuses) // the only error is a flag that does not exist
	cmd.Flags().BoolVar(&f.certs, "certificates", false, "list the certificates of proxies, and when they expire")
	cmd.Flags().BoolVar(&f.workers, "workers", false, "list the worker threads of Envoys, as their agents report them")
	cmd.ValidArgsFunction = f.client.ProxyNames(1)
	return cmd
}

func (f *proxiesFlags) run(cmd *cobra.Command, args []string) error {
	f.istio = slices.Contains(istioctlNames, cmd.CalledAs())
	if len(args) == 1 {
		name, err := f.client.ResolveProxy(cmd.Context(), client.ProxyIn(args[0], f.namespaces.Namespace))
		if err != nil {
			return err
		}
		args = []string{name}
	}
	if err := f.checkStatuses(len(args) == 1); err != nil {
		return terminal.UsageError{Err: err}
	}
	switch {
	case f.watch && (f.workers || f.certs || len(args) == 1 || !f.out.IsTable()):
		return terminal.UsageError{Err: errors.New("--watch: prints a table of proxies: leave out PROXY, --workers, --certificates and --output")}
	case f.workers && f.certs:
		return terminal.UsageError{Err: errors.New("--workers and --certificates: give one of them")}
	case f.certs:
		return f.listCertificates(cmd, args)
	case f.workers:
		return f.listWorkers(cmd, args)
	case len(args) == 1:
		return f.one(cmd, args[0])
	case f.watch:
		return follow(cmd.Context(), cmd.OutOrStdout(), followInterval, func(ctx context.Context) (*proxyTable, error) {
			list, _, err := f.list(ctx)
			return f.table(terminal.StyleFor(cmd.OutOrStdout()), &list), err
		})
	}
	return f.all(cmd)
}

// istioctlNames are the names by which istioctl has this command.
var istioctlNames = []string{"proxy-status", "ps"}

// statusNames returns the values of --status.
func statusNames() (out []string) {
	for _, s := range server.ProxyStatuses {
		out = append(out, strings.ToLower(string(s)))
	}
	return out
}

// completeStatuses completes the last status of a list.
func completeStatuses(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	given := typed[:strings.LastIndexByte(typed, ',')+1]
	for _, s := range statusNames() {
		if !slices.Contains(strings.Split(given, ","), s) {
			out = append(out, given+s)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (f *proxiesFlags) checkStatuses(one bool) error {
	given, excluded := f.statuses, 0
	for i, s := range given {
		s, not := strings.CutPrefix(strings.ToLower(strings.TrimSpace(s)), "!")
		if not {
			excluded++
		}
		if given[i] = s; !slices.Contains(statusNames(), s) {
			return fmt.Errorf("--status %q: unknown status%s: use %s", s, spelling.DidYouMean(s, statusNames()), strings.Join(statusNames(), ", "))
		}
	}
	switch {
	case excluded == 0:
	case excluded < len(given):
		return errors.New("--status: some statuses have '!' and some not: give only those to list, or only those to leave out")
	default:
		f.statuses = slices.DeleteFunc(statusNames(), func(s string) bool { return slices.Contains(given, s) })
		if len(f.statuses) == 0 {
			return errors.New("--status: leaves out all statuses: give fewer")
		}
	}
	if disconnected := strings.ToLower(string(server.ProxyDisconnected)); f.istio && excluded == 0 && slices.Contains(given, disconnected) {
		return errors.New("--status disconnected: istioctl's columns are of connected proxies: use 'moonsail proxies --status disconnected'")
	}
	if one && len(f.statuses) > 0 {
		return errors.New("--status: filters a list: leave out PROXY")
	}
	return nil
}

// hasStatus reports whether --status chooses a proxy.
func (f *proxiesFlags) hasStatus(p *server.ProxyState) bool {
	return len(f.statuses) == 0 || slices.Contains(f.statuses, strings.ToLower(string(p.Judge())))
}

// list returns the proxies of the namespace. By istioctl's names, it leaves out disconnected proxies, and returns how many.
func (f *proxiesFlags) list(ctx context.Context) (list debug.ProxyList, leftOut int, err error) {
	err = f.client.Get(ctx, f.client.Scoped("/debug/proxies"), &list)
	if replicas, err := f.client.Replicas(ctx); err == nil {
		f.asked = replicas[0].Name
	}
	elsewhere := func(p server.ProxyState) bool { return !f.namespaces.Has(p.Namespace) }
	list.Proxies, list.Disconnected = slices.DeleteFunc(list.Proxies, elsewhere), slices.DeleteFunc(list.Disconnected, elsewhere)
	if f.istio {
		leftOut = len(list.Disconnected)
	} else {
		list.Proxies = append(list.Proxies, list.Disconnected...)
		slices.SortStableFunc(list.Proxies, func(a, b server.ProxyState) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	list.Disconnected = nil // they are among the proxies
	for i := range list.Proxies {
		list.Proxies[i].Status = list.Proxies[i].Judge() // a control plane of an older version has no status
	}
	return list, leftOut, err
}

func (f *proxiesFlags) all(cmd *cobra.Command) error {
	list, leftOut, err := f.list(cmd.Context())
	if err != nil {
		return err
	}
	if leftOut > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s disconnected: see 'moonsail proxies --status disconnected'\n", terminal.Count(leftOut, "proxy")+map[bool]string{true: " is", false: " are"}[leftOut == 1])
	}
	list.Proxies = slices.DeleteFunc(list.Proxies, func(p server.ProxyState) bool { return !f.hasStatus(&p) })
	return errors.Join(f.out.Print(cmd.OutOrStdout(), client.List{
		Value: list,
		Names: func() (names []string) {
			for i := range list.Proxies {
				names = append(names, list.Proxies[i].Name+"."+list.Proxies[i].Namespace)
			}
			return names
		},
		Table: func(w io.Writer) error { return f.print(w, &list) },
	}), noteIncomplete(cmd, &f.out, list.Others))
}

func (f *proxiesFlags) one(cmd *cobra.Command, name string) error {
	var detail debug.ProxyDetail
	if err := f.client.GetProxy(cmd.Context(), "/debug/proxies/", name, f.client.Scoped(""), &detail); err != nil {
		return err
	}
	detail.Proxy.Status = detail.Proxy.Judge()
	return f.out.Print(cmd.OutOrStdout(), client.List{
		Value: detail, Names: func() []string { return []string{detail.Proxy.Name + "." + detail.Proxy.Namespace} },
		Table: func(w io.Writer) error { return printProxy(w, detail) },
	})
}

// proxyColumns returns the columns for types. Both types of route configurations share a column. Rare types have
// one only if some proxy subscribes to them.
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

// none returns the text for an empty list.
func (f *proxiesFlags) none() string {
	text := "no proxies are connected"
	if len(f.statuses) > 0 {
		text = "no proxies are " + strings.Join(f.statuses, " or ")
	}
	if f.namespaces.Namespace != "" {
		text += " from namespace " + f.namespaces.Namespace
	}
	return text
}

func (f *proxiesFlags) print(w io.Writer, list *debug.ProxyList) error {
	style := terminal.StyleFor(w)
	if len(list.Proxies) == 0 {
		if _, err := fmt.Fprintln(w, f.none()); err != nil {
			return err
		}
		return printIncomplete(w, style, list.Others)
	}
	if err := f.table(style, list).write(w); err != nil {
		return err
	}
	return printIncomplete(w, style, list.Others)
}

// table returns the list as a table, in the columns of the command's name.
func (f *proxiesFlags) table(style terminal.Style, list *debug.ProxyList) *proxyTable {
	if f.istio {
		return istioctlTable(style, list, f.asked, f.hasStatus)
	}
	columns := proxyColumns(list.Proxies)
	t := &proxyTable{headings: append([]string{"NAME", "NAMESPACE", "STATUS"}, columns...), widest: map[string]string{
		"STATUS": widestStatus, "PROTOCOL": "delta", "ROUTES": string(server.RoutesScoped), "SETTLED": "999999999", "CONNECTED": widestAge,
	}}
	for _, c := range columns {
		t.widest[c] = widestState
	}
	t.headings = append(t.headings, "PROTOCOL", "ROUTES", "SETTLED", "CONNECTED", "ENVOY")
	if len(list.Others) > 0 {
		t.headings = append(t.headings, "CONTROL PLANE")
	}
	if f.out.IsWide() {
		t.headings = append(t.headings, "ISTIO", "REVISION", "PEER", "NODE ID")
	}
	for i := range list.Proxies {
		p := &list.Proxies[i]
		row := proxyRow{key: p.ID, cells: []string{p.Name, p.Namespace, proxyStatus(style, p, list.Now)}}
		for _, c := range columns {
			row.cells = append(row.cells, columnState(style, p, c, list.Now))
		}
		row.cells = append(row.cells, p.Protocol, string(p.Strategy), fmt.Sprint(p.Settled), age(list.Now, p.Connected), terminal.OrDash(terminal.Escape(p.Version)))
		if len(list.Others) > 0 {
			row.cells = append(row.cells, whose(p.ControlPlane))
		}
		if f.out.IsWide() {
			row.cells = append(row.cells, terminal.OrDash(p.IstioVersion), terminal.OrDash(p.Revision), p.Peer, p.ID)
		}
		row.state, row.hidden = stateOf(p), !f.hasStatus(p)
		t.rows = append(t.rows, row)
	}
	return t
}

// proxyStatus returns the status of a proxy, with the number of refused resources, or how long it is behind.
func proxyStatus(style terminal.Style, p *server.ProxyState, now time.Time) string {
	switch status := p.Judge(); status {
	case server.ProxyRefuses:
		return style.Bad(fmt.Sprintf("%s %d", status, p.Refused()))
	case server.ProxyDisconnected:
		return style.Bad(fmt.Sprintf("%s %s", status, age(now, p.DisconnectedSince)))
	case server.ProxyBehind:
		if p.BehindSince.IsZero() {
			return style.Warn(string(status))
		}
		return style.Warn(fmt.Sprintf("%s %s", status, age(now, p.BehindSince)))
	default:
		return style.Good(string(status))
	}
}

// columnState returns the state of the type with this name. If two types share the name, it is that of the type
// in use.
func columnState(style terminal.Style, p *server.ProxyState, column string, now time.Time) string {
	state := typeState(style, &server.TypeState{}, now)
	for i := range p.Types {
		if t := &p.Types[i]; t.Type == column && t.InUse() {
			state = typeState(style, t, now)
		}
	}
	return state
}

// typeState returns the state of a type: NACKED, SENT and for how long, WAITING, SYNCED, or - if it is not in use.
func typeState(style terminal.Style, t *server.TypeState, now time.Time) string {
	switch t.Progress() {
	case server.TypeLacks:
		return style.Bad(fmt.Sprintf("LACKS %d", t.Lacks))
	case server.TypeRefused:
		return style.Bad(fmt.Sprintf("NACKED %d", len(t.Held)))
	case server.TypeInFlight:
		return style.Warn("SENT " + age(now, t.InFlightSince))
	case server.TypeWaiting:
		return style.Warn("WAITING")
	case server.TypeSynced, server.TypeNotSent:
		return style.Good("SYNCED")
	default:
		return style.Dim("-")
	}
}

func printProxy(w io.Writer, d debug.ProxyDetail) error {
	p := &d.Proxy
	fmt.Fprintf(w, "%s.%s\n  node id    %s\n  peer       %s\n  connected  %s ago, %s, routes by %s\n",
		p.Name, p.Namespace, p.ID, p.Peer, age(d.Now, p.Connected), p.Protocol, p.Strategy)
	if p.ControlPlane != "" {
		fmt.Fprintf(w, "  server     control plane %s, to which the revisions belong\n", p.ControlPlane)
	}
	if p.Revision != "" {
		fmt.Fprintf(w, "  revision   %s, of its control plane\n", p.Revision)
	}
	if p.Version != "" || d.Node != nil && d.Node.IstioVersion != "" {
		fmt.Fprintf(w, "  version    Envoy %s", terminal.OrDash(terminal.Escape(p.Version)))
		if d.Node != nil {
			fmt.Fprintf(w, ", Istio %s", terminal.OrDash(terminal.Escape(d.Node.IstioVersion)))
		}
		fmt.Fprintln(w)
	}
	about := pendingText(p)
	if p.IsDisconnected() {
		about = disconnectedText(&d)
	}
	fmt.Fprintf(w, "  status     %s%s\n  settled    revision %d\n", proxyStatus(terminal.StyleFor(w), p, d.Now), about, p.Settled)
	for i, name := range p.Tables {
		fmt.Fprintf(w, "  table %d    %s\n", i+1, name)
	}
	fmt.Fprintln(w)
	t := terminal.NewTable("TYPE", "STATE", "SUBSCRIBED", "SENT", "ACKED", "NOTE")
	style := terminal.StyleFor(w)
	for i := range p.Types {
		s := &p.Types[i]
		if !s.InUse() {
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
	return printHeld(w, style, p, d.Now)
}

// disconnectedText explains the last state of a proxy.
func disconnectedText(d *debug.ProxyDetail) string {
	text := fmt.Sprintf(", since %s: it may be stuck, or unable to reach the control plane; this is its last state", d.Proxy.DisconnectedSince.Local().Format("15:04:05"))
	if len(d.Silent) > 0 {
		text += "; it may be connected to a control plane that does not answer: " + strings.Join(d.Silent, ", ")
	}
	return text
}

// pendingText describes how far a proxy is behind.
func pendingText(p *server.ProxyState) string {
	text := ""
	if p.Pending > 0 {
		text = fmt.Sprintf(": %s not ACKed, the oldest is %d", terminal.Count(p.Pending, "revision"), p.OldestPending)
	}
	if p.Unread {
		text += "; it does not read its stream"
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

// mostHeld bounds the names of resources with the same message.
const mostHeld = 20

// printHeld prints the resources that the proxy has refused, those of a type with the same message together.
func printHeld(w io.Writer, style terminal.Style, p *server.ProxyState, now time.Time) error {
	var b strings.Builder
	for i := range p.Types {
		for _, same := range byMessage(p.Types[i].Held) {
			fmt.Fprintf(&b, "\n%s %s, held back until it differs: %s\n", style.Bad("refused"), p.Types[i].Type, terminal.Escape(same[0].Message))
			if by := same[0].By.String(); by != "" {
				fmt.Fprintf(&b, "  %s\n", terminal.Escape(by))
			}
			for _, h := range same[:min(len(same), mostHeld)] {
				since := ""
				if !h.Since.IsZero() {
					since = ", " + age(now, h.Since) + " ago"
				}
				fmt.Fprintf(&b, "  %s (version %s%s)\n", terminal.Escape(h.Name), h.Version, since)
			}
			if more := len(same) - mostHeld; more > 0 {
				fmt.Fprintf(&b, "  and %d more: see -o json\n", more)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// byMessage groups refused resources with the same message and objects, in the order of the first one of each group.
func byMessage(list []server.Held) (groups [][]server.Held) {
	of := map[[2]string]int{}
	for _, h := range list {
		same := [2]string{h.Message, h.By.String()}
		i, known := of[same]
		if !known {
			i = len(groups)
			of[same], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], h)
	}
	return groups
}
