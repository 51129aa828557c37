package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Output is the flag -o: table for people, json and yaml for programs.
type Output struct {
	format   string
	template string   // after "=" in the format
	more     []string // formats of one command
}

const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// AddFlag adds -o/--output to cmd.
func (o *Output) AddFlag(cmd *cobra.Command) { o.AddFlagWith(cmd) }

// AddFlagWith adds -o/--output with more formats, which the command writes itself (Is). A format as "jsonpath=TEMPLATE" has
// an argument (Template).
func (o *Output) AddFlagWith(cmd *cobra.Command, more ...string) {
	o.more = more
	cmd.Flags().VarP(o, "output", "o", "output `FORMAT`: "+o.formats())
	o.format = formatTable
	cmd.Flags().Lookup("output").DefValue = formatTable
	Offer(cmd, "output", append([]string{formatTable, formatJSON, formatYAML}, more...)...)
}

// formats lists the formats for help and errors.
func (o *Output) formats() string {
	list := append([]string{formatTable, formatJSON, formatYAML}, o.more...)
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// Is reports whether the output has one of the formats of AddFlagWith.
func (o *Output) Is(format string) bool { return o.format == format }

// Template returns the argument of the format.
func (o *Output) Template() string { return o.template }

// String implements pflag.Value.
func (o *Output) String() string { return o.format }

// Type implements pflag.Value.
func (o *Output) Type() string { return "FORMAT" }

// Set implements pflag.Value.
func (o *Output) Set(s string) error {
	name, template, _ := strings.Cut(s, "=")
	for _, f := range o.more {
		if with, _, ok := strings.Cut(f, "="); ok && with == name && template != "" {
			o.format, o.template = name, template
			return nil
		}
	}
	switch {
	case s == formatTable, s == formatJSON, s == formatYAML, slices.Contains(o.more, s) && !strings.Contains(s, "="):
		o.format = s
		return nil
	}
	return fmt.Errorf("unknown format %q: use %s", s, o.formats())
}

// IsTable reports whether the output is for people.
func (o *Output) IsTable() bool { return o.format == formatTable || o.format == "" }

// Print writes value as JSON or YAML, or lets table write it for people.
func (o *Output) Print(w io.Writer, value any, table func(io.Writer) error) error {
	switch o.format {
	case formatJSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	case formatYAML:
		b, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	return table(w)
}

// Table holds rows under headings. A column is as wide as its widest cell.
type Table struct {
	headings []string
	rows     [][]string
}

// NewTable returns a table with these columns.
func NewTable(headings ...string) *Table { return &Table{headings: headings} }

// Row adds a row. Cells may be painted; missing ones are empty. Characters that cannot be printed are escaped.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Write writes the table. Headings are bold on a terminal.
func (t *Table) Write(w io.Writer) error {
	width := make([]int, len(t.headings))
	for _, row := range append([][]string{t.headings}, t.rows...) {
		for i := range width {
			width[i] = max(width[i], PrintedWidth(cell(row, i)))
		}
	}
	s := StyleFor(w)
	bold := make([]string, len(t.headings))
	for i, h := range t.headings {
		bold[i] = s.Bold(h)
	}
	var b strings.Builder
	for _, row := range append([][]string{bold}, t.rows...) {
		if err := WriteRow(&b, row, width); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const columnGap = 2

// WriteRow writes a row as Table does. Column i takes width[i] characters, or more if its cell is wider. Characters that
// cannot be printed are escaped.
func WriteRow(w io.Writer, row []string, width []int) error {
	var line strings.Builder
	for i := range width {
		c := cell(row, i)
		line.WriteString(c)
		line.WriteString(strings.Repeat(" ", max(0, width[i]-PrintedWidth(c))+columnGap))
	}
	_, err := io.WriteString(w, strings.TrimRight(line.String(), " ")+"\n")
	return err
}

func cell(row []string, i int) string {
	if i < len(row) {
		return escapePainted(row[i])
	}
	return ""
}

// PrintedWidth returns the number of characters that s takes on a terminal. Escape
// sequences of Style take none.
func PrintedWidth(s string) int {
	n, escape := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}

// OrDash returns s, or "-" for an empty cell.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Count returns "1 file" or "2 files", "1 proxy" or "2 proxies".
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
