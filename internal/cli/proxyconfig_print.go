package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

// printConfig shows a table for each section, what Secrets there are, and what Envoy refused or has otherwise.
func printConfig(w io.Writer, c *comparedConfig, section string, actual *explain.Actual) error {
	s := terminal.StyleFor(w)
	for _, sec := range explain.Sections {
		if section != sec.Name && (section != explain.AllSections || sec.Name == "extensions" && !c.has("ECDS", "BDS")) {
			continue // only agents have extensions, by streams of their own
		}
		if err := printSection(w, s, c, sec.Name, section == explain.AllSections); err != nil {
			return err
		}
	}
	if err := printSecrets(w, s, c); err != nil {
		return err
	}
	if err := printDifferences(w, s, c); err != nil || actual != nil {
		return err
	}
	if c.Unasked != "" {
		_, err := fmt.Fprintln(w, s.Warn("Envoy itself was not asked: "+c.Unasked))
		return err
	}
	_, err := fmt.Fprintln(w, s.Dim("Envoy itself was not asked: say where its admin interface is with --admin"))
	return err
}

// has tells whether there are resources of some types.
func (c *comparedConfig) has(types ...string) bool {
	return slices.ContainsFunc(c.Resources, func(r comparedResource) bool { return slices.Contains(types, r.Type) })
}

func printSection(w io.Writer, s terminal.Style, c *comparedConfig, name string, titled bool) error {
	sum := summaries[name]
	t := terminal.NewTable(append(slices.Clone(sum.headings), "SENT", "ENVOY")...)
	rows := 0
	for i := range c.Resources {
		r := &c.Resources[i]
		if !slices.Contains(sum.types, r.Type) {
			continue
		}
		list, err := sum.rows(r)
		if err != nil {
			return err
		}
		for _, row := range list {
			row = append(row, make([]string, len(sum.headings)-len(row))...)
			t.Row(append(row, sentCell(s, r), envoyCell(s, r))...)
			rows++
		}
	}
	if titled {
		if _, err := fmt.Fprintf(w, "%s\n", s.Bold(name)); err != nil {
			return err
		}
	}
	if rows == 0 {
		_, err := fmt.Fprintf(w, "no %s%s\n%s", name, c.elsewhere(name), map[bool]string{true: "\n"}[titled])
		return err
	}
	if err := t.Write(w); err != nil || !titled {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// elsewhere says of a section without resources of which there are none, and whose there may be.
func (c *comparedConfig) elsewhere(section string) string {
	at := strings.LastIndexByte(c.Proxy, '.')
	switch {
	case c.named != "":
		return fmt.Sprintf(" with %q in the name", c.named)
	case section == "secrets" && len(c.Secrets) > 0:
		return " of the control plane's"
	case section == "extensions" && at > 0 && c.Agent != "":
		return fmt.Sprintf("; plugins whose modules are fetched are its agent's: 'moonsail proxy-config extensions %s.plugins%s'", c.Proxy[:at], c.Proxy[at:])
	}
	return ""
}

func sentCell(s terminal.Style, r *comparedResource) string {
	switch r.Sent {
	case "":
		return s.Dim("-")
	case "ACKed":
		return s.Good(r.Sent)
	case "refused":
		return s.Bad(r.Sent)
	}
	return s.Warn(r.Sent)
}

func envoyCell(s terminal.Style, r *comparedResource) string {
	switch {
	case r.Envoy == nil:
		return s.Dim("?")
	case r.Envoy.State == explain.Same:
		return s.Good(r.Envoy.State)
	case r.Envoy.State == explain.Warming:
		return s.Warn(r.Envoy.State)
	}
	return s.Bad(r.Envoy.State)
}

// printDifferences tells what Envoy refused, and where it has something else.
func printDifferences(w io.Writer, s terminal.Style, c *comparedConfig) error {
	for i := range c.Resources {
		r := &c.Resources[i]
		if r.Message != "" {
			if _, err := fmt.Fprintf(w, "\n%s %s %s, held back until it differs:\n  %s\n", s.Bad("refused"), r.Type, r.Name, r.Message); err != nil {
				return err
			}
		}
		if r.Envoy == nil || len(r.Envoy.Differences) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s %s %s:\n", s.Bad(r.Envoy.State), r.Type, r.Name); err != nil {
			return err
		}
		for _, d := range r.Envoy.Differences {
			if _, err := fmt.Fprintf(w, "  %s\n", d); err != nil {
				return err
			}
		}
	}
	return nil
}
