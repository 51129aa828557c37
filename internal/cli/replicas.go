package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Answers are about the proxies of all control planes, where there are several: the one that
// is asked asks the others.

// addLocalFlag adds --local to cmd.
func (c *debugClient) addLocalFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.local, "local", false, "ask the control plane at --address about its own proxies alone, where there are several control planes")
}

// scoped is a page about all control planes, or with --local about one.
func (c *debugClient) scoped(page string) string {
	switch {
	case !c.local:
		return page
	case strings.Contains(page, "?"):
		return page + "&local"
	}
	return page + "?local"
}

// thisOne is the control plane that was asked.
const thisOne = "this one"

// whose names a proxy's control plane.
func whose(controlPlane string) string {
	if controlPlane == "" {
		return thisOne
	}
	return controlPlane
}

// proxyOf is "web-1.shop", and with which control plane it is where that is another one.
func proxyOf(p *distribution.ProxySyncStatus) string {
	if p.ControlPlane == "" {
		return p.Name + "." + p.Namespace
	}
	return fmt.Sprintf("%s.%s (%s)", p.Name, p.Namespace, p.ControlPlane)
}

// haveIt is "; 2 of 3 control planes have it", where there are several.
func haveIt(e *explain.Explanation) string {
	if len(e.Elsewhere) == 0 {
		return ""
	}
	lack := 0
	for i := range e.Elsewhere {
		if e.Elsewhere[i].Lacks() {
			lack++
		}
	}
	all := 1 + len(e.Elsewhere)
	return fmt.Sprintf("; %d of %d control planes have it", all-lack, all)
}

// lacking are the control planes that are not known to have told their proxies of an object.
func lacking(list []explain.PeerStatus) []explain.PeerStatus {
	return slices.DeleteFunc(slices.Clone(list), func(o explain.PeerStatus) bool { return !o.Lacks() })
}

// printLacking says why they do not.
func printLacking(w io.Writer, s terminal.Style, list []explain.PeerStatus) error {
	for _, o := range lacking(list) {
		if _, err := fmt.Fprintf(w, "  control plane %s %s\n", o.ControlPlane, s.Warn(lackText(&o))); err != nil {
			return err
		}
	}
	return nil
}

func lackText(o *explain.PeerStatus) string {
	switch {
	case o.Silent != "":
		return "does not tell: " + o.Silent
	case o.State == changelog.Building:
		return "has it, and is about to tell its proxies"
	case !o.Exists:
		return "does not have it"
	}
	return "has another version of it (" + strings.TrimPrefix(o.Origin+", "+o.ResourceVersion, ", ") + ")"
}

// printUntold names control planes whose proxies are not all in a list.
func printUntold(w io.Writer, s terminal.Style, list []explain.PeerQuery) error {
	for _, a := range list {
		var text string
		switch {
		case a.Silent != "":
			text = s.Bad(fmt.Sprintf("control plane %s does not tell of its proxies: %s", a.ControlPlane, a.Silent))
		case a.LeftOut > 0:
			text = fmt.Sprintf("control plane %s has %d more: ask it with --address and --local", a.ControlPlane, a.LeftOut)
		default:
			continue
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// isSilent tells whether some control plane did not answer.
func isSilent(list []explain.PeerQuery) bool {
	return slices.ContainsFunc(list, func(a explain.PeerQuery) bool { return a.Silent != "" })
}
