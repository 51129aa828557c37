package proxyconfig

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// printConfig prints a table for each section, the secrets, and what Envoy refused or has different.
func printConfig(w io.Writer, c *comparedConfig, section string, actual *explain.Actual) error {
	s := terminal.StyleFor(w)
	for _, sec := range explain.Sections {
		if section != sec.Name && (section != explain.AllSections || sec.Name == "extensions" && !c.has("ECDS", "BDS")) {
			continue // only agents have extensions, on streams of their own
		}
		if err := printSection(w, s, c, sec.Name, section == explain.AllSections); err != nil {
			return err
		}
	}
	if err := printSecrets(w, s, c); err != nil {
		return err
	}
	if err := printDifferences(w, s, c); err != nil || actual != nil || c.late {
		return err
	}
	if c.Unasked != "" {
		_, err := fmt.Fprintln(w, s.Warn("Envoy was not asked: "+c.Unasked))
		return err
	}
	_, err := fmt.Fprintln(w, s.Dim("Envoy was not asked: set --admin to its admin interface"))
	return err
}

// has reports whether there are resources of some types.
func (c *comparedConfig) has(types ...string) bool {
	return slices.ContainsFunc(c.Resources, func(r comparedResource) bool { return slices.Contains(types, r.Type) })
}

func printSection(w io.Writer, s terminal.Style, c *comparedConfig, name string, titled bool) error {
	sum := summaries[name]
	t := terminal.NewTable(slices.Concat(sum.headings, []string{"SENT", "ENVOY"}, c.wideColumns("VERSION", "BYTES", "OBJECTS"))...)
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
			t.Row(slices.Concat(row, []string{sentCell(s, r), envoyCell(s, r)}, c.wideColumns(terminal.OrDash(r.Version), strconv.Itoa(r.Bytes), objectsCell(r)))...)
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

// elsewhere explains a section without resources: which ones it lacks, and who may have some.
func (c *comparedConfig) elsewhere(section string) string {
	at := strings.LastIndexByte(c.Proxy, '.')
	switch {
	case c.chosen != "":
		return c.chosen
	case section == "secrets" && len(c.Secrets) > 0:
		return " from the control plane"
	case section == "extensions" && at > 0 && c.Agent != "":
		return c.hint(fmt.Sprintf("; its agent has the plugins with fetched modules: see 'moonsail proxy-config extensions %s'", model.CommandWord(c.Proxy[:at]+".plugins"+c.Proxy[at:], "PROXY")))
	}
	return ""
}

// wideColumns returns the cells that only -o wide prints.
func (c *comparedConfig) wideColumns(cells ...string) []string {
	if !c.wide {
		return nil
	}
	return cells
}

// objectsCell names the objects that a resource was made from.
func objectsCell(r *comparedResource) string {
	var names []string
	for _, key := range r.Objects {
		names = append(names, key.String())
	}
	return terminal.OrDash(strings.Join(names, ", "))
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

// printDifferences prints what Envoy refused, and how it differs.
func printDifferences(w io.Writer, s terminal.Style, c *comparedConfig) error {
	for i := range c.Resources {
		r := &c.Resources[i]
		if r.Message != "" {
			if _, err := fmt.Fprintf(w, "\n%s %s %s, held back until it differs:\n  %s\n", s.Bad("refused"), r.Type, terminal.Escape(r.Name), terminal.Escape(r.Message)); err != nil {
				return err
			}
		}
		if r.Envoy == nil || len(r.Envoy.Differences) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s %s %s:\n", s.Bad(r.Envoy.State), r.Type, terminal.Escape(r.Name)); err != nil {
			return err
		}
		for _, d := range r.Envoy.Differences {
			if _, err := fmt.Fprintf(w, "  %s\n", terminal.Escape(d)); err != nil {
				return err
			}
		}
	}
	return nil
}

// printSecrets prints the certificates in Envoy.
func printSecrets(w io.Writer, s terminal.Style, config *comparedConfig) error {
	list := config.Secrets
	if len(list) == 0 {
		return nil
	}
	t := terminal.NewTable("SECRET IN ENVOY", "STATE", "KIND", "ID", "VALID UNTIL", "SERIAL", "ISSUER")
	for i := range list {
		one := &list[i]
		if len(one.Certificates) == 0 {
			t.Row(one.Name, one.State, one.Kind)
		}
		for j := range one.Certificates {
			c := &one.Certificates[j]
			id := strings.Join(c.IDs, ",")
			if id == "" {
				id = c.Subject
			}
			t.Row(one.Name, one.State, one.Kind, id, validity(s, c, config.Now), c.Serial, c.Issuer)
		}
	}
	return t.Write(w)
}

func validity(s terminal.Style, c *explain.Certificate, now time.Time) string {
	text := c.NotAfter.Local().Format(time.DateTime)
	switch {
	case now.After(c.NotAfter):
		return s.Bad(text + ", expired")
	case now.Before(c.NotBefore):
		return s.Bad(fmt.Sprintf("%s, not before %s", text, c.NotBefore.Local().Format(time.DateTime)))
	}
	return s.Good(fmt.Sprintf("%s, in %s", text, roughly(c.NotAfter.Sub(now))))
}

// roughly rounds a duration to minutes, or to days if it is long.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", d/day)
}
