package inspect

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// explainFlags are the values of the flags of `moonsail explain`.
type explainFlags struct {
	client client.ControlPlane
	out    terminal.Output
	object client.Object
	all    bool
	max    uint
	sample uint
}

func newExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Explain the last change of an object, and which proxies lack it",
		Long: `Explain the last change of an object: the time of each stage from its event to the last proxy's answer,
the proxies that do not have it, and the reason:

  refused       the proxy refused it; Envoy's message and the resource are shown
  behind        the proxy has not answered, or another resource must come first
  disconnected  the stream ended before the proxy had the change, and has not come back

An ACK means that Envoy has accepted the change. It may not use it yet, for example while a cluster
is warming. The command therefore asks some Envoys, through their agents (--in-use).

A proxy is not concerned if it subscribes to nothing that the change touched. It is superseded if it
has a newer version.

With several control planes, the list covers the proxies of all, and names control planes that have
another version or do not answer. The stages, the revision, and the Envoys that are asked belong to
the control plane that answers. --local covers it alone.

An object that was deleted lately is explained by its deletion: when, and whether all proxies have
ACKed the removal.

Instead of KIND/NAME, KIND NAME is accepted too, and NAME.NAMESPACE instead of NAME. deployment/NAME or
another workload stands for one of its Pods.`,
		Example: `  # Explain a VirtualService
  moonsail explain virtualservice/reviews -n shop

  # List also the proxies that have it
  moonsail explain vs/reviews --all

  # Print all details
  moonsail explain endpointslice/reviews-1 -o yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			object, err := client.ObjectArg(args)
			if err != nil {
				return err
			}
			return f.run(cmd, object)
		},
	}
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd)
	f.client.AddLocalFlag(cmd)
	f.object.AddFlag(cmd, &f.client)
	f.object.Pods = true
	cmd.Flags().BoolVar(&f.all, "all", false, "list all proxies, not only those without the change")
	cmd.Flags().UintVar(&f.max, "max", 100, "list at most `N` proxies")
	cmd.Flags().UintVar(&f.sample, "in-use", 3, "ask `N` Envoys that have ACKed the change whether they use it; 0: none")
	cmd.ValidArgsFunction = f.object.Complete(false)
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, object string) error {
	key, err := f.object.Key(cmd.Context(), object)
	if err != nil {
		return err
	}
	e, err := fetchExplanation(cmd.Context(), &f.client, key, f.all, f.max)
	if err != nil {
		return f.object.Explain(cmd.Context(), key, err)
	}
	out := &explained{e, f.inUse(cmd.Context(), e), f.sidecarOf(cmd.Context(), key)}
	return f.out.Print(cmd.OutOrStdout(), out, func(w io.Writer) error {
		if err := printExplanation(cmd, w, e); err != nil {
			return err
		}
		if p := out.Sidecar; p != nil {
			name := p.Name + "." + p.Namespace
			if _, err := fmt.Fprintf(w, "its sidecar is %s: see 'moonsail proxies %s'\n", proxyStatus(terminal.StyleFor(w), p, e.Now), name); err != nil {
				return err
			}
		}
		return printInUse(w, terminal.StyleFor(w), out.InUse)
	})
}

// fetchExplanation asks a control plane about the last change of an object.
func fetchExplanation(ctx context.Context, c *client.ControlPlane, key model.Key, all bool, most uint) (*explain.Explanation, error) {
	page := fmt.Sprintf("/debug/explain/%s?max=%d", client.ObjectPath(key), most)
	if all {
		page += "&all"
	}
	if end, ok := ctx.Deadline(); ok { // leaves time to name peers that do not answer; there may be two rounds
		page += fmt.Sprintf("&within=%s", max(time.Millisecond, time.Until(end)/3))
	}
	e := &explain.Explanation{}
	return e, c.Get(ctx, c.Scoped(page), e)
}

func printExplanation(cmd *cobra.Command, w io.Writer, e *explain.Explanation) error {
	var b strings.Builder
	s := terminal.StyleFor(w)
	fmt.Fprintf(&b, "%s  %s%s\n", s.Bold(e.Object.String()), objectState(s, e), refusalText(s, e))
	if e.Error != nil {
		fmt.Fprintf(&b, "  %s\n", s.Bad(refusedText(e.Error, e.Partly)))
	}
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "  %s\n", s.Warn(p))
	}
	switch {
	case e.Revision == 0:
		fmt.Fprintf(&b, "\nits %s is stored, and will be processed soon: ask again\n", map[bool]string{true: "newest version", false: "deletion"}[e.Exists])
	case e.Change == nil:
		fmt.Fprintf(&b, "\nits last change, revision %d, was observed %s ago; the times of its stages are no longer known\n",
			e.Revision, age(e.Now, e.Observed))
	default:
		fmt.Fprintf(&b, "\nrevision %d, observed %s, %s ago%s\n\n", e.Revision,
			e.Change.Observed.Local().Format("15:04:05.000"), age(e.Now, e.Change.Observed), together(e.Change))
		waterfall(&b, s, e)
	}
	if _, err := io.WriteString(w, b.String()); err != nil || e.Revision == 0 {
		return err
	}
	return printDistribution(cmd, w, s, e)
}

// refusalText returns "; refused by 1 proxy", if proxies refuse what is made from an object because of it; "" otherwise.
func refusalText(s terminal.Style, e *explain.Explanation) string {
	sure, unsure := 0, 0
	for i := range e.Refusals {
		r := &e.Refusals[i]
		if r.Blame.Sure {
			sure = max(sure, r.Proxies)
		}
		unsure = max(unsure, r.Proxies)
	}
	switch {
	case sure > 0:
		return "; " + s.Bad("refused by "+terminal.Count(sure, "proxy"))
	case unsure > 0:
		return "; " + s.Bad(terminal.Count(unsure, "proxy")+" may refuse a resource because of it")
	}
	return ""
}

// refusedText describes that the newest version of an object, or a part of it, is not in force, and where its error is.
func refusedText(p *problem.Problem, partly bool) string {
	text := "its newest version is refused"
	if partly {
		text = "a part of its newest version is refused"
	}
	if where := p.Where(); where != "" {
		text += ", at " + terminal.Escape(where)
	}
	return text
}

// messageOf returns a problem without its place, object and severity.
func messageOf(p problem.Problem) string {
	p.File, p.Line, p.Object = "", 0, model.Key{}
	return strings.TrimPrefix(p.String(), string(p.Severity)+": ")
}

// objectState describes the version in force: "updated, in mesh/reviews.yaml:3".
func objectState(s terminal.Style, e *explain.Explanation) string {
	parts := []string{string(e.Operation)}
	switch {
	case !e.Exists && e.Operation == changelog.Deleted:
		return fmt.Sprintf("deleted %s ago, at %s: %s", age(e.Now, e.Observed), e.Observed.Local().Format("15:04:05"), removalText(s, e))
	case !e.Exists && e.Operation == "":
		parts = []string{"no longer exists"}
	case e.Exists && e.Origin != "":
		parts = append(parts, "in "+e.Origin)
	}
	if e.ResourceVersion != "" {
		parts = append(parts, "version "+e.ResourceVersion)
	}
	return strings.TrimSpace(strings.Join(parts, ", "))
}

// removalText reports whether all proxies have ACKed the removal of a deleted object.
func removalText(s terminal.Style, e *explain.Explanation) string {
	c := &e.Counts
	left := ""
	if n := c.Disconnected; n > 0 {
		left = fmt.Sprintf("; %d disconnected without it", n)
	}
	switch {
	case e.State == changelog.Building:
		return s.Warn("the removal is not sent to proxies yet")
	case !e.Everywhere():
		return s.Warn("not every control plane is known to have sent the removal") + left
	case c.Concerned() == 0:
		return "no connected proxy is concerned" + left
	case c.Acked < c.Concerned():
		return s.Warn(fmt.Sprintf("%d of %d proxies have not ACKed the removal", c.Concerned()-c.Acked, c.Concerned())) + left
	}
	return s.Good(fmt.Sprintf("every proxy that needs it (%d) has ACKed the removal", c.Acked)) + left
}

func together(c *changelog.Change) string {
	text := ""
	if c.ObjectCount > 1 {
		text = ", together with " + terminal.Count(c.ObjectCount-1, "other object")
	}
	if c.Superseded {
		text += ", sent as part of a newer revision"
	}
	return text
}

// stageTexts describe the stages.
var stageTexts = [changelog.NumStages]string{
	"queued and stored", "dependent configuration derived", "Envoy resources encoded",
	"first response sent", "last proxy answered",
}

// barWidth is the width of a waterfall, in characters.
const barWidth = 40

// waterfall draws the time of each stage as a bar that begins where the previous one
// ends.
func waterfall(b *strings.Builder, s terminal.Style, e *explain.Explanation) {
	times := timesAt(e.Change, e.Now, tableUnit)
	known := e.Committed.Before(e.Observed) && !e.Committed.IsZero()
	var watch time.Duration
	if known {
		watch = e.Observed.Sub(e.Committed).Round(tableUnit)
	}
	whole := max(watch+times.total, 1)
	line := func(name string, from, took time.Duration, length, text string) {
		start, end := int(barWidth*from/whole), int((barWidth*(from+took)+whole-1)/whole)
		bar := strings.Repeat(" ", start) + strings.Repeat("█", end-start)
		if took == 0 {
			bar = strings.Repeat(" ", min(start, barWidth-1)) + s.Dim("·")
		}
		fmt.Fprintf(b, "  %-9s %9s  %s%s  %s\n", name, length+" ms", bar, strings.Repeat(" ", max(0, barWidth-terminal.PrintedWidth(bar))), s.Dim(text))
	}
	if known {
		line("watch", 0, watch, millis(watch), "from the API server's commit, known to the second, until observed")
	}
	at := watch
	for i, took := range times.stages {
		stage, text := changelog.Stage(i), stageTexts[i]
		if times.pending && stage == times.open {
			text += ": not yet"
		}
		line(stage.String(), at, took, times.stage(stage), text)
		at += took
	}
	soFar := ""
	if times.pending {
		soFar = " so far"
	}
	fmt.Fprintf(b, "  %-9s %s%s  %d resources changed, %d bytes\n", "total", s.Bold(fmt.Sprintf("%9s", atLeast(watch+times.total, times.pending)+" ms")), soFar,
		e.Change.Resources, e.Change.Bytes)
}

func printDistribution(cmd *cobra.Command, w io.Writer, s terminal.Style, e *explain.Explanation) error {
	if _, err := fmt.Fprintf(w, "\n%s%s\n", countsText(s, &e.Counts), haveIt(e)); err != nil {
		return err
	}
	if err := printLacking(w, s, e.Elsewhere); err != nil {
		return err
	}
	if len(e.Proxies) > 0 {
		t := terminal.NewTable("PROXY", "STATE", "WHY")
		for i := range e.Proxies {
			p := &e.Proxies[i]
			reasons := reasonTexts(cmd, p, e.Now)
			t.Row(proxyOf(p), positionText(s, p), reasons[0])
			for _, more := range reasons[1:] {
				t.Row("", "", more)
			}
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if e.LeftOut > 0 {
		_, err := fmt.Fprintf(w, "and %d more: list them with --max\n", e.LeftOut)
		return err
	}
	return nil
}

// countsText returns "distributed to 10 of 11 proxies (90.9 %); 1 refused it, 3 not concerned".
func countsText(s terminal.Style, c *explain.Counts) string {
	if c.Concerned() == 0 {
		return fmt.Sprintf("no connected proxy is concerned%s", rest(c))
	}
	text := fmt.Sprintf("distributed to %d of %d proxies (%s)", c.Acked, c.Concerned(), percentText(c.Percent()))
	if c.Acked == c.Concerned() {
		text = s.Good(text)
	} else {
		text = s.Warn(text)
	}
	return text + rest(c)
}

func rest(c *explain.Counts) string {
	var parts []string
	for _, n := range []struct {
		count int
		text  string
	}{
		{c.Refused, "refused it"}, {c.Behind, "behind"}, {c.Disconnected, "disconnected without it"},
		{c.Superseded, "superseded"}, {c.NotConcerned, "not concerned"},
	} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.text))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}

// percentText never rounds up to 100.
func percentText(p float64) string {
	if p > 99.9 && p < 100 {
		p = 99.9
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", p), ".0") + " %"
}

func positionText(s terminal.Style, w *distribution.ProxySyncStatus) string {
	switch w.Position {
	case distribution.StateRefused:
		return s.Bad("refused")
	case distribution.StateBehind, distribution.StateDisconnected:
		return s.Warn(string(w.Position))
	case distribution.StateNotConcerned:
		return s.Dim("not concerned")
	}
	if w.Superseded {
		return s.Good("superseded")
	}
	return s.Good("has it")
}

// why describes why a proxy lacks a change.
func why(cmd *cobra.Command, w *distribution.ProxySyncStatus, now time.Time) string {
	return strings.Join(reasonTexts(cmd, w, now), "; ")
}

// mostReasons bounds the texts of reasonTexts.
const mostReasons = 5

// reasonTexts describes why a proxy lacks a change, in at least one text. Refused resources of a type with the same message share
// one.
func reasonTexts(cmd *cobra.Command, w *distribution.ProxySyncStatus, now time.Time) []string {
	var joined []distribution.Reason
	for i := range w.Reasons {
		r := w.Reasons[i]
		same := slices.IndexFunc(joined, func(j distribution.Reason) bool {
			return r.Cause == distribution.CauseRefused && j.Cause == r.Cause && j.Type == r.Type && j.Text == r.Text
		})
		if same < 0 {
			joined = append(joined, r)
		} else {
			joined[same].Names = slices.Concat(joined[same].Names, r.Names)
		}
	}
	texts := []string{}
	for i := range joined[:min(len(joined), mostReasons)] {
		texts = append(texts, reasonText(&joined[i], now))
	}
	if more := len(joined) - mostReasons; more > 0 {
		command := "'moonsail proxies " + model.CommandWord(w.Name+"."+w.Namespace, "PROXY") + "'"
		texts = append(texts, fmt.Sprintf("and %s: see %s", terminal.Count(more, "more reason"), terminal.Hint(cmd, command)))
	}
	if len(texts) == 0 {
		return []string{""}
	}
	return texts
}

// mostRefused bounds the names of refused resources with the same message.
const mostRefused = 2

// reasonText describes why a proxy lacks a change.
func reasonText(r *distribution.Reason, now time.Time) string {
	since := ""
	if !r.Since.IsZero() {
		since = " for " + age(now, r.Since)
	}
	switch r.Cause {
	case distribution.CauseUnanswered:
		if len(r.Names) > 0 {
			return fmt.Sprintf("has not answered %s%s: it may be waiting for DNS, for the addresses of %s", r.Type, since, strings.Join(r.Names, ", "))
		}
		return fmt.Sprintf("has not answered %s%s", r.Type, since)
	case distribution.CauseUnread:
		return fmt.Sprintf("does not read its stream: %s%s", r.Type, since)
	case distribution.CauseWaits:
		if len(r.Names) > 0 {
			return fmt.Sprintf("%s waits for endpoints of %s%s", r.Type, strings.Join(r.Names, ", "), since)
		}
		return fmt.Sprintf("%s waits for %s%s", r.Type, r.Text, since)
	case distribution.CauseRefused:
		return fmt.Sprintf("refused %s %s: %s", r.Type, firstNames(r.Names, mostRefused), r.Text)
	case distribution.CauseDisconnected:
		return "disconnected" + since
	}
	return r.Type + " is about to be sent"
}

// explained is the result of `moonsail explain`.
type explained struct {
	*explain.Explanation
	// InUse lists some proxies that have ACKed the change, and whether their Envoys use it.
	InUse []agents.Use `json:"inUse,omitempty"`
	// Sidecar is the proxy of a Pod; nil: none is known.
	Sidecar *server.ProxyState `json:"sidecar,omitempty"`
}

// sidecarOf returns the proxy of a Pod; nil: it has none, or the object is not a Pod.
func (f *explainFlags) sidecarOf(ctx context.Context, key model.Key) *server.ProxyState {
	if key.Kind != model.KindPod {
		return nil
	}
	var d debug.ProxyDetail
	if f.client.Get(ctx, "/debug/proxies/"+url.PathEscape(key.Name+"."+key.Namespace), &d) != nil {
		return nil
	}
	d.Proxy.Status = d.Proxy.Judge()
	return &d.Proxy
}

// inUse asks some Envoys whether they use the last change of an object. If the question fails, the
// explanation goes without it.
func (f *explainFlags) inUse(ctx context.Context, e *explain.Explanation) []agents.Use {
	if f.sample == 0 || e.Counts.Acked == 0 || e.Revision == 0 {
		return nil
	}
	var answer debug.InUse
	page := fmt.Sprintf("/debug/in-use/%s?max=%d", client.ObjectPath(e.Object), f.sample)
	if err := f.client.Get(ctx, page, &answer); err != nil || answer.Revision != e.Revision {
		return nil // the control plane is older, or the object has changed again
	}
	return answer.Asked
}

// printInUse prints "in use by 3 of 3 Envoys that were asked".
func printInUse(w io.Writer, s terminal.Style, list []agents.Use) error {
	if len(list) == 0 {
		return nil
	}
	asked, used := 0, 0
	var b strings.Builder
	for i := range list {
		u := &list[i]
		switch {
		case u.Error != "":
			fmt.Fprintf(&b, "  %s: %s\n", u.Proxy, s.Dim("unknown: "+u.Error))
			continue
		case u.InUse:
			used++
		default:
			fmt.Fprintf(&b, "  %s: %s\n", u.Proxy, s.Warn("not in use yet: "+strings.Join(u.Why, "; ")))
		}
		asked++
	}
	text := fmt.Sprintf("in use by %d of %d Envoys that were asked", used, asked)
	switch {
	case asked == 0:
		text = s.Dim("no Envoy has answered whether it uses the change")
	case used == asked:
		text = s.Good(text)
	default:
		text = s.Warn(text)
	}
	_, err := fmt.Fprintf(w, "%s\n%s", text, b.String())
	return err
}
