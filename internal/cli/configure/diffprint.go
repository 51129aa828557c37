package configure

import (
	"fmt"
	"io"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/terminal"
)

// maxNames is how many names of a list are printed. -o json has all.
const maxNames = 4

// printDiff writes a report for people.
func printDiff(w io.Writer, r *preview.Report) error {
	s := terminal.StyleFor(w)
	var b strings.Builder
	paint := map[string]func(string) string{"created": s.Good, "changed": s.Warn, "deleted": s.Bad}
	if r.Source != "" {
		fmt.Fprintf(&b, "compared with %s\n", r.Source)
	}
	for _, o := range r.Objects {
		fmt.Fprintf(&b, "%s %s", paint[o.Operation](o.Operation), userKey(o.Object))
		if o.Origin != "" && o.Operation != "deleted" {
			b.WriteString(s.Dim(" (" + o.Origin + ")"))
		}
		b.WriteByte('\n')
	}
	if len(r.Objects) == 0 {
		b.WriteString("no object differs\n")
	}
	fmt.Fprintf(&b, "%s\n", sentText(r))
	for _, line := range populationText(r) {
		fmt.Fprintf(&b, "%s\n", line)
	}
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "\n%s %s\n", s.Bold(listed(texts(d.Calls))), s.Dim("from "+listed(d.From)+countText(&d)))
		for _, c := range d.Changes {
			fmt.Fprintf(&b, "  %-17s %s %s %s\n", c.What, s.Bad(c.Before), s.Dim("->"), s.Good(c.After))
		}
	}
	if len(r.Differences) > 0 {
		b.WriteByte('\n')
	}
	for _, text := range undecidedTexts(r.Undecided) {
		fmt.Fprintf(&b, "%s %s\n", s.Warn("undecided:"), text)
	}
	fmt.Fprintf(&b, "%s\n", callsText(r))
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%s %s\n", s.Warn("new:"), problemLine(s, p))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s %s\n", s.Warn("note:"), n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func sentText(r *preview.Report) string {
	if len(r.Proxies) == 0 {
		return fmt.Sprintf("%s: none would be sent anything", terminal.Count(r.Of, "proxy"))
	}
	resources := 0
	var names []string
	for _, p := range r.Proxies {
		for _, n := range p.Resources {
			resources += n
		}
		names = append(names, p.Proxy)
	}
	of := terminal.Count(r.Of, "proxy")
	if r.Source != "" {
		of += " of these objects (connected or not)"
	}
	return fmt.Sprintf("%d of %s would be sent %s, %d bytes: %s", len(r.Proxies), of, terminal.Count(resources, "resource"), r.Bytes, listed(names))
}

// populationText names the proxies that only one side has.
func populationText(r *preview.Report) []string {
	var out []string
	if len(r.New) > 0 {
		out = append(out, terminal.Count(len(r.New), "new proxy")+": "+listed(r.New))
	}
	if len(r.Gone) > 0 {
		out = append(out, terminal.Count(len(r.Gone), "removed proxy")+": "+listed(r.Gone))
	}
	return out
}

func callsText(r *preview.Report) string {
	text := fmt.Sprintf("%s tried: %d decided differently", terminal.Count(r.Tried, "call"), r.Differ)
	if n := outcome.CountUndecided(r.Undecided); n > 0 {
		text += fmt.Sprintf("; %d more are undecided", n)
	}
	if r.Untried > 0 {
		text += fmt.Sprintf("; %d more were not tried: raise --max-calls, or choose calls with --calls", r.Untried)
	}
	return text
}

// maxUndecided is how many reasons for undecided calls are printed. -o json has all.
const maxUndecided = 10

// undecidedTexts returns a line for each set of undecided calls.
func undecidedTexts(list []outcome.Undecided) []string {
	var out []string
	for i := range list {
		if i == maxUndecided {
			return append(out, fmt.Sprintf("%s for %d other reasons: see -o json", terminal.Count(outcome.CountUndecided(list[i:]), "call"), len(list)-i))
		}
		u := &list[i]
		out = append(out, fmt.Sprintf("%s %s: %s (for example %s from %s)", terminal.Count(u.Count, "call"), u.Side, u.Reason, u.Call, u.Proxy))
	}
	return out
}

// listed joins the first names of a list.
func listed(names []string) string { return listedTo(names, maxNames) }

// listedTo joins the names of a list; if they are more than most, the first ones.
func listedTo(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
}

func texts(requests []preview.Request) []string {
	var out []string
	for i := range requests {
		out = append(out, requests[i].String())
	}
	return out
}

// countText is how many calls a difference has, if it has several.
func countText(d *preview.Difference) string {
	if d.Count < 2 {
		return ""
	}
	return ": " + terminal.Count(d.Count, "call")
}

// maxCallers is how many callers a comment lists for each difference.
const maxCallers = 10

// verdictText is what a change does to calls, in a few words.
func verdictText(r *preview.Report) string {
	var out []string
	if r.Broken > 0 {
		out = append(out, "breaks "+terminal.Count(r.Broken, "call"))
	}
	if r.Repaired > 0 {
		out = append(out, "repairs "+terminal.Count(r.Repaired, "call"))
	}
	if others := r.Differ - r.Broken - r.Repaired; others > 0 {
		out = append(out, "changes "+terminal.Count(others, "call"))
	}
	if len(out) == 0 {
		out = []string{"no call is decided differently"}
	}
	text := strings.Join(out, ", ")
	if unknown := outcome.CountUndecided(r.Undecided) + r.Untried; unknown > 0 {
		text += fmt.Sprintf("; %s not decided", terminal.Count(unknown, "call"))
	}
	return text
}

// printDiffComment writes a report as Markdown, for a comment on a pull request.
func printDiffComment(w io.Writer, r *preview.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### moonsail diff: %s\n\n%s. %s.\n", verdictText(r), callsText(r), strings.Join(append([]string{sentText(r)}, populationText(r)...), "; "))
	for _, o := range r.Objects {
		fmt.Fprintf(&b, "- %s %s", o.Operation, verbatim(userKey(o.Object).String()))
		if o.Origin != "" && o.Operation != "deleted" {
			fmt.Fprintf(&b, " (%s)", verbatim(o.Origin))
		}
		b.WriteByte('\n')
	}
	if len(r.Differences) > 0 {
		b.WriteString("\n| calls | from | what | before | after |\n|---|---|---|---|---|\n")
	}
	for _, d := range r.Differences {
		for i, c := range d.Changes {
			calls, from := cell(listedTo(texts(d.Calls), maxCallers)), cell(listedTo(d.From, maxCallers))+countText(&d)
			if i > 0 {
				calls, from = "", ""
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", calls, from, cell(c.What), cell(c.Before), cell(c.After))
		}
	}
	for _, text := range undecidedTexts(r.Undecided) {
		fmt.Fprintf(&b, "\n> undecided: %s\n", verbatim(text))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\n> new: %s\n", verbatim(problemLine(terminal.Style{}, p)))
	}
	if r.Source != "" {
		fmt.Fprintf(&b, "\n> compared with %s\n", verbatim(r.Source))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n> %s\n", verbatim(n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell returns text as code in a cell of a Markdown table. A backslash before a bar would let the bar end the cell.
func cell(text string) string {
	return verbatim(strings.NewReplacer(`\|`, `\ \|`, "|", `\|`).Replace(text))
}

// verbatim returns text that comes from elsewhere as code of one line: nothing in it is Markdown, such as a link or an image.
func verbatim(text string) string {
	return "`" + strings.ReplaceAll(terminal.Escape(text), "`", "'") + "`"
}
