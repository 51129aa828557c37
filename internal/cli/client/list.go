package client

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	"github.com/moonsail/moonsail/internal/terminal"
)

// ListOutput is the flag -o of commands that list, with kubectl's formats.
type ListOutput struct{ terminal.Output }

// Formats of lists, in addition to those of all commands. jsonpath has a template, as in kubectl.
const (
	formatWide     = "wide"
	formatName     = "name"
	formatJSONPath = "jsonpath"
)

// List is the result of a command that lists.
type List struct {
	Value any                   // for -o json, yaml and jsonpath
	Names func() []string       // for -o name: one for each row, in a form that other commands take; unused with AddFlagOfOne
	Table func(io.Writer) error // for people; see IsWide
}

const withTemplate = formatJSONPath + "=TEMPLATE"

// AddFlag adds -o/--output to cmd, with more formats, which the command writes itself (Is).
func (o *ListOutput) AddFlag(cmd *cobra.Command, more ...string) {
	o.AddFlagWith(cmd, append([]string{formatWide, formatName, withTemplate}, more...)...)
}

// AddFlagOfOne adds -o/--output to a command whose result is not a list: it has no names and no further columns.
func (o *ListOutput) AddFlagOfOne(cmd *cobra.Command) { o.AddFlagWith(cmd, withTemplate) }

// IsTable reports whether the output is for people.
func (o *ListOutput) IsTable() bool { return o.Output.IsTable() || o.IsWide() }

// IsWide reports whether the output is a table with more columns.
func (o *ListOutput) IsWide() bool { return o.Is(formatWide) }

// IsPart reports whether the output has only a part of the value: names, or what a template selects.
func (o *ListOutput) IsPart() bool { return o.Is(formatName) || o.Is(formatJSONPath) }

// Print writes a list in the format of the flag.
func (o *ListOutput) Print(w io.Writer, l List) error {
	switch {
	case o.Is(formatJSONPath):
		return printPath(w, o.Template(), l.Value)
	case o.Is(formatName):
		for _, n := range l.Names() {
			if _, err := fmt.Fprintln(w, n); err != nil {
				return err
			}
		}
		return nil
	}
	return o.Output.Print(w, l.Value, l.Table)
}

// printPath evaluates a template on the value as -o json writes it. As in kubectl, braces may be missing.
func printPath(w io.Writer, template string, value any) error {
	text := template
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(text); err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--output: jsonpath %q: %w: use a template as for kubectl, for example '{.proxies[*].name}'", template, err)}
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var generic any
	if err := json.Unmarshal(b, &generic); err != nil {
		return err
	}
	if err := p.Execute(w, generic); err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--output: jsonpath %q: %w", template, err)}
	}
	_, err = fmt.Fprintln(w)
	return err
}
