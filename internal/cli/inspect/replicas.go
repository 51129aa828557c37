package inspect

// With several control planes, the one that is asked asks its peers. This file prints their part of an answer.

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// thisOne names the control plane at --address.
const thisOne = "this one"

// whose names the control plane of a proxy.
func whose(controlPlane string) string {
	if controlPlane == "" {
		return thisOne
	}
	return controlPlane
}

// proxyOf returns "web-1.shop", followed by its control plane if it is a peer.
func proxyOf(p *distribution.ProxySyncStatus) string {
	if p.ControlPlane == "" {
		return p.Name + "." + p.Namespace
	}
	return fmt.Sprintf("%s.%s (%s)", p.Name, p.Namespace, p.ControlPlane)
}

// haveIt returns "; 2 of 3 control planes have it" if there are several.
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

// lacking returns the control planes that have not sent an object to their proxies, as far as is known.
func lacking(list []explain.PeerStatus) []explain.PeerStatus {
	return slices.DeleteFunc(slices.Clone(list), func(o explain.PeerStatus) bool { return !o.Lacks() })
}

// printLacking prints the reason of each.
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
		return "does not answer: " + o.Silent
	case o.State == changelog.Building:
		return "has it, and is about to send it"
	case !o.Exists:
		return "does not have it"
	}
	return "has another version of it (" + strings.TrimPrefix(o.Origin+", "+o.ResourceVersion, ", ") + ")"
}

// printIncomplete names control planes whose proxies are not all in a list.
func printIncomplete(w io.Writer, s terminal.Style, list []explain.PeerQuery) error {
	for _, a := range list {
		var text string
		switch {
		case a.Silent != "":
			text = s.Bad(fmt.Sprintf("control plane %s does not answer: %s", a.ControlPlane, a.Silent))
		case a.LeftOut > 0:
			text = fmt.Sprintf("control plane %s has %d more: list them with --address and --local", a.ControlPlane, a.LeftOut)
		default:
			continue
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// noteIncomplete writes to standard error what printIncomplete writes, if the output has no place for it.
func noteIncomplete(cmd *cobra.Command, out *client.ListOutput, list []explain.PeerQuery) error {
	if !out.IsPart() {
		return nil
	}
	return printIncomplete(cmd.ErrOrStderr(), terminal.StyleFor(cmd.ErrOrStderr()), list)
}

// isSilent reports whether some control plane did not answer.
func isSilent(list []explain.PeerQuery) bool {
	return slices.ContainsFunc(list, func(a explain.PeerQuery) bool { return a.Silent != "" })
}
