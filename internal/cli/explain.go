package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// explainFlags are those of "moonsail explain".
type explainFlags struct {
	client debugClient
	out    terminal.Output
	object objectArg
	all    bool
	max    uint
	sample uint
}

// NewExplainCommand is "moonsail explain".
func NewExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Tell the way of an object's last change, and which proxies do not have it",
		Long: `Tells what became of the last change of an object: how long it took in each stage on its
way from its event to the last proxy's answer, and which proxies do not have it, and why:

  refused       the proxy said no; Envoy's words, and the resource that is held back
  behind        it has not answered, or waits for something that must come first
  disconnected  its stream ended before it had the change, and it has not come back

An ACK says that Envoy has taken the change. Of the proxies that have it some are asked,
through their agents, whether they use it too: clusters may still be warming (--in-use).

Proxies that subscribe to nothing that the change touched are not concerned. Superseded:
they have a newer form of what it changed.

Where there are several control planes, the proxies are those of all, and those are named that
have another version of the object or do not answer. Stages and revision are of the one that is
asked, and so are the proxies that are asked whether they use it. --local asks it alone.`,
		Example: `  moonsail explain virtualservice/reviews -n shop
  moonsail explain vs/reviews --all             # every proxy, also those that have it
  moonsail explain vs/reviews --local           # of several control planes, the proxies of this one
  moonsail explain endpointslice/reviews-1 -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	f.client.addLocalFlag(cmd)
	f.object.addFlag(cmd, &f.client)
	cmd.Flags().BoolVar(&f.all, "all", false, "list every proxy, not only those that do not have it")
	cmd.Flags().UintVar(&f.max, "max", 100, "list at most `N` proxies")
	cmd.Flags().UintVar(&f.sample, "in-use", 3, "ask so many proxies that have it whether their Envoys use it; 0: none")
	cmd.ValidArgsFunction = f.object.complete(&f.client, false)
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, object string) error {
	key, err := f.object.key(cmd.Context(), &f.client, object)
	if err != nil {
		return err
	}
	e, err := f.client.explain(cmd.Context(), key, f.all, f.max)
	if err != nil {
		return err
	}
	out := &explained{e, f.inUse(cmd.Context(), e)}
	return f.out.Print(cmd.OutOrStdout(), out, func(w io.Writer) error {
		if err := printExplanation(w, e); err != nil {
			return err
		}
		return printInUse(w, terminal.StyleFor(w), out.InUse)
	})
}

// explain asks about an object's last change.
func (c *debugClient) explain(ctx context.Context, key model.Key, all bool, most uint) (*explain.Explanation, error) {
	page := fmt.Sprintf("/debug/explain/%s?max=%d", pathOf(key), most)
	if all {
		page += "&all"
	}
	if end, ok := ctx.Deadline(); ok { // who does not answer in time is to be named; there may be two rounds
		page += fmt.Sprintf("&within=%s", max(time.Millisecond, time.Until(end)/3))
	}
	e := &explain.Explanation{}
	return e, c.get(ctx, c.scoped(page), e)
}

func printExplanation(w io.Writer, e *explain.Explanation) error {
	var b strings.Builder
	s := terminal.StyleFor(w)
	fmt.Fprintf(&b, "%s  %s\n", s.Bold(e.Object.String()), objectState(e))
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "  %s\n", s.Warn(p))
	}
	switch {
	case e.Revision == 0:
		b.WriteString("\nits newest form is in the store and has not begun its way yet; ask again\n")
	case e.Change == nil:
		fmt.Fprintf(&b, "\nits last change, revision %d, was observed %s ago; where its time went is forgotten\n",
			e.Revision, age(e.Now, e.Observed))
	default:
		fmt.Fprintf(&b, "\nrevision %d, observed %s, %s ago%s\n\n", e.Revision,
			e.Change.Observed.Local().Format("15:04:05.000"), age(e.Now, e.Change.Observed), together(e.Change))
		waterfall(&b, s, e)
	}
	if _, err := io.WriteString(w, b.String()); err != nil || e.Revision == 0 {
		return err
	}
	return printDistribution(w, s, e)
}

// objectState is what is in force: "updated in mesh/reviews.yaml:3".
func objectState(e *explain.Explanation) string {
	parts := []string{string(e.Operation)}
	switch {
	case !e.Exists && e.Operation == "":
		parts = []string{"is not there"}
	case e.Exists && e.Origin != "":
		parts = append(parts, "in "+e.Origin)
	}
	if e.ResourceVersion != "" {
		parts = append(parts, "version "+e.ResourceVersion)
	}
	return strings.TrimSpace(strings.Join(parts, ", "))
}

func together(c *changelog.Change) string {
	text := ""
	if c.ObjectCount > 1 {
		text = fmt.Sprintf(", together with %d other objects", c.ObjectCount-1)
	}
	if c.Superseded {
		text += ", sent as part of a newer revision"
	}
	return text
}

// stageTexts say what each stage is, for people.
var stageTexts = [changelog.NumStages]string{
	"waiting, and into the store", "what depends on it derived", "resources translated, encoded, in their tables",
	"first response on its way", "last proxy's answer",
}

// barWidth is the width of the whole in a waterfall.
const barWidth = 40

// waterfall draws where the time went: one bar a stage, each beginning where the one
// before has ended.
func waterfall(b *strings.Builder, s terminal.Style, e *explain.Explanation) {
	stages, total := e.Change.Timeline.Split(tableUnit)
	known := e.Committed.Before(e.Observed) && !e.Committed.IsZero()
	var watch time.Duration
	if known {
		watch = e.Observed.Sub(e.Committed).Round(tableUnit)
	}
	whole := max(watch+total, 1)
	line := func(name string, from, took time.Duration, text string) {
		start, end := int(barWidth*from/whole), int((barWidth*(from+took)+whole-1)/whole)
		bar := strings.Repeat(" ", start) + strings.Repeat("█", end-start)
		if took == 0 {
			bar = strings.Repeat(" ", min(start, barWidth-1)) + s.Dim("·")
		}
		fmt.Fprintf(b, "  %-9s %9s  %s%s  %s\n", name, millis(took)+" ms", bar, strings.Repeat(" ", max(0, barWidth-terminal.PrintedWidth(bar))), s.Dim(text))
	}
	if known {
		line("watch", 0, watch, "from the API server's commit, which it tells to the second, until it was observed")
	}
	at := watch
	for i, took := range stages {
		line(changelog.Stage(i).String(), at, took, stageTexts[i])
		at += took
	}
	fmt.Fprintf(b, "  %-9s %s  %d resources differ, %d bytes\n", "total", s.Bold(fmt.Sprintf("%9s", millis(watch+total)+" ms")), e.Change.Resources, e.Change.Bytes)
}

func printDistribution(w io.Writer, s terminal.Style, e *explain.Explanation) error {
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
			t.Row(proxyOf(p), positionText(s, p), why(p, e.Now))
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if e.LeftOut > 0 {
		_, err := fmt.Fprintf(w, "and %d more: see them with --max\n", e.LeftOut)
		return err
	}
	return nil
}

// countsText is "distributed to 10 of 11 proxies (90.9 %): 1 refused it; 3 not concerned".
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

func why(w *distribution.ProxySyncStatus, now time.Time) string {
	parts := make([]string, len(w.Reasons))
	for i := range w.Reasons {
		parts[i] = reasonText(&w.Reasons[i], now)
	}
	return strings.Join(parts, "; ")
}

// reasonText says why a proxy does not have something.
func reasonText(r *distribution.Reason, now time.Time) string {
	since := ""
	if !r.Since.IsZero() {
		since = " for " + age(now, r.Since)
	}
	switch r.Cause {
	case distribution.CauseUnanswered:
		return fmt.Sprintf("has not answered %s%s", r.Type, since)
	case distribution.CauseUnread:
		return fmt.Sprintf("does not read what it is sent, %s%s", r.Type, since)
	case distribution.CauseWaits:
		if len(r.Names) > 0 {
			return fmt.Sprintf("%s waits for endpoints of %s%s", r.Type, strings.Join(r.Names, ", "), since)
		}
		return fmt.Sprintf("%s waits for %s%s", r.Type, r.Text, since)
	case distribution.CauseRefused:
		return fmt.Sprintf("refused %s %s: %s", r.Type, strings.Join(r.Names, ", "), r.Text)
	case distribution.CauseDisconnected:
		return "disconnected" + since
	}
	return r.Type + " is about to be sent"
}
