package istiod

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/outcome"
)

// result is the result of a run.
type result struct {
	Groups []*groupResult `json:"groups"`
	Total  groupResult    `json:"total"`
	Cases  []*caseResult  `json:"cases"`
	Listed []*listedSeen  `json:"listed"`
	list   differences
}

// groupResult counts the calls of a group of cases.
type groupResult struct {
	Name  string `json:"name"`
	Cases int    `json:"cases"`
	Calls int    `json:"calls"`
	// Verdicts counts the calls with equal verdicts: answer, server and destination. Alike are those without any difference.
	Verdicts int `json:"verdicts"`
	Alike    int `json:"alike"`
	// On purpose, or by a defect of Istio; the others, open or not listed.
	Deliberate  int `json:"deliberate"`
	IstioDefect int `json:"istioDefect"`
	Simulator   int `json:"simulator"`
	Open        int `json:"open"`
	Unlisted    int `json:"unlisted"`
	// OpenVerdicts are the calls of Open and Unlisted whose verdicts differ.
	OpenVerdicts int `json:"openVerdicts"`
	Undecided    int `json:"undecided"`
}

// caseResult is the result of one case.
type caseResult struct {
	Name        string               `json:"name"`
	Calls       int                  `json:"calls"`
	Alike       int                  `json:"alike"`
	Refused     []string             `json:"refused,omitempty"` // by the API server
	Differences []compare.Difference `json:"differences,omitempty"`
	Undecided   []outcome.Undecided  `json:"undecided,omitempty"`
	Unlisted    []compare.Difference `json:"unlisted,omitempty"`
}

// listedSeen is a listed difference, and how often a run met it.
type listedSeen struct {
	Title  string   `json:"title"`
	Class  class    `json:"class"`
	Reason string   `json:"reason"`
	Calls  int      `json:"calls"`
	Cases  []string `json:"cases"`
}

// verdicts are the properties that make a verdict.
var verdicts = []string{"answer", "server", "destination", "encryption"}

// add adds a case's report.
func (r *result) add(k *testCase, report *compare.Report, refused []string) *caseResult {
	c := &caseResult{Name: k.name, Calls: report.Calls, Alike: report.Alike, Refused: refused, Differences: report.Differences, Undecided: report.Undecided}
	r.Cases = append(r.Cases, c)
	i := slices.IndexFunc(r.Groups, func(g *groupResult) bool { return g.Name == k.group() })
	if i < 0 {
		i = len(r.Groups)
		r.Groups = append(r.Groups, &groupResult{Name: k.group()})
	}
	for _, g := range []*groupResult{r.Groups[i], &r.Total} {
		g.Cases++
		g.Calls += report.Calls
		g.Alike += report.Alike
		g.Verdicts += report.Alike
		g.Undecided += outcome.CountUndecided(report.Undecided)
	}
	for i := range report.Differences {
		d := &report.Differences[i]
		entries := r.list.of(k.name, d)
		for _, l := range entries {
			if l != nil {
				l.seen += d.Count
				l.in[k.name] = true
			}
		}
		of := worst(entries)
		for _, g := range []*groupResult{r.Groups[slices.IndexFunc(r.Groups, func(g *groupResult) bool { return g.Name == k.group() })], &r.Total} {
			g.count(d, of)
		}
		if of == "" {
			c.Unlisted = append(c.Unlisted, *d)
		}
	}
	return c
}

// worst returns the class that a call with these changes counts for; empty: one of them is not listed.
func worst(entries []*listed) class {
	found := map[class]bool{}
	for _, l := range entries {
		if l == nil {
			return ""
		}
		found[l.Class] = true
	}
	for _, c := range []class{open, istioDefect, deliberate} {
		if found[c] {
			return c
		}
	}
	return simulator
}

func (g *groupResult) count(d *compare.Difference, of class) {
	verdict := slices.ContainsFunc(d.Changes, func(c compare.Change) bool { return slices.Contains(verdicts, c.What) })
	if !verdict {
		g.Verdicts += d.Count
	}
	switch of {
	case deliberate:
		g.Deliberate += d.Count
	case istioDefect:
		g.IstioDefect += d.Count
	case simulator:
		g.Simulator += d.Count
	case open:
		g.Open += d.Count
	default:
		g.Unlisted += d.Count
	}
	if verdict && (of == open || of == "") {
		g.OpenVerdicts += d.Count
	}
}

// finish lists what was met, and returns the titles of listed differences that no case had.
func (r *result) finish() (gone []string) {
	for _, l := range r.list {
		r.Listed = append(r.Listed, &listedSeen{Title: l.Title, Class: l.Class, Reason: l.Reason, Calls: l.seen, Cases: slices.Sorted(maps.Keys(l.in))})
		if l.seen == 0 {
			gone = append(gone, l.Title)
		}
	}
	r.Total.Name = "all"
	return gone
}

// write writes the report as JSON and text.
func (r *result) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.txt"), []byte(r.String()), 0o644)
}

// String is the report as text.
func (r *result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %6s %8s %9s %9s %8s %11s %6s %6s %8s %9s\n",
		"group", "cases", "calls", "verdicts", "all", "purpose", "Istio's own", "sim", "open", "unlisted", "undecided")
	for _, g := range append(slices.Clone(r.Groups), &r.Total) {
		fmt.Fprintf(&b, "%-24s %6d %8d %8.3f%% %8.3f%% %8d %11d %6d %6d %8d %9d\n", g.Name, g.Cases, g.Calls,
			share(g.Verdicts, g.Calls), share(g.Alike, g.Calls), g.Deliberate, g.IstioDefect, g.Simulator, g.Open, g.Unlisted, g.Undecided)
	}
	b.WriteString("\nlisted differences\n")
	for _, l := range r.Listed {
		fmt.Fprintf(&b, "%-12s %7d calls, %3d cases  %s\n", l.Class, l.Calls, len(l.Cases), l.Title)
	}
	for _, c := range r.Cases {
		for i := range c.Unlisted {
			fmt.Fprintf(&b, "\n%s: not listed: %s", c.Name, describe(&c.Unlisted[i]))
		}
		for _, u := range c.Undecided {
			fmt.Fprintf(&b, "\n%s: %d calls like %s through %s are not decided for %s: %s\n", c.Name, u.Count, u.Call, u.Proxy, u.Side, u.Reason)
		}
	}
	return b.String()
}

// describe is a difference as text.
func describe(d *compare.Difference) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls of %s, like %s\n", d.Count, strings.Join(d.Proxies, ", "), strings.Join(d.Calls[:min(len(d.Calls), 3)], " | "))
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "  %s\n    istiod   %s\n    moonsail %s\n", c.What, c.Left, c.Right)
	}
	return b.String()
}

func share(part, all int) float64 {
	if all == 0 {
		return 100
	}
	return 100 * float64(part) / float64(all)
}
