package istiod

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
)

// class is who is right about a difference.
type class string

// The classes.
const (
	deliberate  class = "deliberate"   // Moonsail differs on purpose
	istioDefect class = "istio-defect" // Istio's behaviour contradicts its documentation, or is unsafe
	open        class = "open"         // Moonsail's behaviour is to change
	simulator   class = "simulator"    // neither differs: the simulator or the case cannot show it
)

// listed is a difference that is known.
type listed struct {
	Title  string
	Class  class
	Reason string
	// What is a property of calls; "*": any. The change of it must match Istiod and Moonsail, regular expressions; empty: any text.
	What             string
	Istiod, Moonsail string
	// Cases are patterns of the cases' names; empty: all cases. Calls is a regular expression that all calls match.
	Cases []string
	Calls string

	istiod, moonsail, calls *regexp.Regexp
	seen                    int // calls
	in                      map[string]bool
}

// anyProperty lists all that differs in calls.
const anyProperty = "*"

// differences are the listed ones.
type differences []*listed

// readDifferences reads the list of a file.
func readDifferences(name string) (differences, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseDifferences(name, text)
}

func parseDifferences(name string, text []byte) (differences, error) {
	var out differences
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	titles := map[string]bool{}
	for _, l := range out {
		if err := l.compile(); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, l.Title, err)
		}
		if titles[l.Title] {
			return nil, fmt.Errorf("%s: %q: it is listed twice", name, l.Title)
		}
		titles[l.Title] = true
	}
	return out, nil
}

func (l *listed) compile() error {
	switch l.Class {
	case deliberate, istioDefect, open, simulator:
	default:
		return fmt.Errorf("class %q: use deliberate, istio-defect, open or simulator", l.Class)
	}
	if l.Title == "" || l.Reason == "" || l.What == "" {
		return fmt.Errorf("title, reason and what are required")
	}
	l.in = map[string]bool{}
	for _, p := range l.Cases {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("cases: %q: %w", p, err)
		}
	}
	for _, e := range []struct {
		text string
		into **regexp.Regexp
	}{{l.Istiod, &l.istiod}, {l.Moonsail, &l.moonsail}, {l.Calls, &l.calls}} {
		re, err := regexp.Compile("(?s)^(?:" + e.text + ")$")
		if e.text == "" {
			re, err = regexp.MustCompile(""), nil
		}
		if err != nil {
			return err
		}
		*e.into = re
	}
	return nil
}

// matches reports whether the entry lists a change in a difference of a case.
func (l *listed) matches(name string, d *compare.Difference, c compare.Change) bool {
	if l.What != anyProperty && l.What != c.What || !l.istiod.MatchString(c.Left) || !l.moonsail.MatchString(c.Right) {
		return false
	}
	in := len(l.Cases) == 0
	for _, p := range l.Cases {
		if ok, _ := path.Match(p, name); ok {
			in = true
		}
	}
	for _, text := range d.Calls {
		in = in && l.calls.MatchString(text)
	}
	return in
}

// of returns the entry for each change of a difference; nil where there is none.
func (list differences) of(name string, d *compare.Difference) []*listed {
	out := make([]*listed, len(d.Changes))
	for i, c := range d.Changes {
		for _, l := range list {
			if l.matches(name, d, c) {
				out[i] = l
				break
			}
		}
	}
	return out
}

// all reports whether each change of a difference is listed.
func (list differences) all(name string, d *compare.Difference) bool {
	for _, l := range list.of(name, d) {
		if l == nil {
			return false
		}
	}
	return true
}
