package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

func progressText(list []*awaited) string {
	unseen, behind, elsewhere := 0, 0, ""
	for _, a := range list {
		if !a.current() {
			unseen++
			continue
		}
		behind = max(behind, a.seen.Counts.Behind)
		if lack := lacking(a.seen.Elsewhere); len(lack) > 0 {
			elsewhere = lack[0].ControlPlane
		}
	}
	switch {
	case unseen > 0:
		return fmt.Sprintf("waiting for the control plane to see %s", plural(unseen, "object"))
	case elsewhere != "":
		return "waiting for the control plane " + elsewhere
	}
	return fmt.Sprintf("waiting for %s", plural(behind, "proxy"))
}

func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// report says how it ended, and makes the exit status of it.
func (f *waitFlags) report(cmd *cobra.Command, list []*awaited, outcome waitOutcome, took time.Duration) error {
	r := waitResult{Reached: outcome == waitReached, Refused: outcome == waitRefused, Waited: took.Round(time.Millisecond).String()}
	for _, a := range list {
		if a.seen == nil {
			a.seen = &explain.Explanation{Object: a.key, Proxies: []distribution.ProxySyncStatus{}}
		}
		r.Objects = append(r.Objects, a.seen)
	}
	err := f.out.Print(cmd.OutOrStdout(), r, func(w io.Writer) error { return f.print(w, list, outcome, r.Waited) })
	switch {
	case err != nil:
		return err
	case outcome == waitTimedOut:
		return exitTimeout
	case outcome == waitRefused:
		return exitRefused
	}
	return nil
}

func (f *waitFlags) print(w io.Writer, list []*awaited, outcome waitOutcome, waited string) error {
	s := terminal.StyleFor(w)
	headline := s.Good("reached") + " after " + waited
	switch outcome {
	case waitRefused:
		headline = s.Bad("refused") + " after " + waited + ": what is in force there is the last good form"
	case waitTimedOut:
		headline = s.Bad("not reached") + " within " + waited
	}
	if _, err := fmt.Fprintln(w, headline); err != nil {
		return err
	}
	for _, a := range list {
		if err := f.printObject(w, s, a, outcome); err != nil {
			return err
		}
	}
	return nil
}

func (f *waitFlags) printObject(w io.Writer, s terminal.Style, a *awaited, outcome waitOutcome) error {
	e := a.seen
	text := countsText(s, &e.Counts) + haveIt(e)
	switch {
	case !a.told:
		text = s.Warn("the control plane did not answer in that time")
	case e.Revision == 0 && !e.Exists:
		text = s.Warn("the control plane has not seen it; is it the one that reads this configuration? See also /debug/problems")
	case !a.current():
		text = s.Warn("the control plane has another version of it (" + e.Origin + ")")
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", a.key, text); err != nil || !a.current() {
		return err
	}
	if err := printLacking(w, s, e.Elsewhere); err != nil {
		return err
	}
	for i := range e.Proxies {
		p := &e.Proxies[i]
		if outcome == waitRefused && p.Position != distribution.StateRefused {
			continue
		}
		if _, err := fmt.Fprintf(w, "  %s: %s\n", proxyOf(p), why(p, e.Now)); err != nil {
			return err
		}
	}
	if e.LeftOut > 0 && !slices.Contains([]waitOutcome{waitReached}, outcome) {
		_, err := fmt.Fprintf(w, "  and %d more: see 'moonsail explain %s/%s -n %s'\n", e.LeftOut, strings.ToLower(string(a.key.Kind)), a.key.Name, a.key.Namespace)
		return err
	}
	return nil
}
