package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Widths of help in columns. Lines of more than 100 are hard to read.
const (
	leastHelp   = 60
	mostHelp    = 100
	defaultHelp = 80 // without a terminal
)

// helpWidth returns the width of help: that of the terminal at standard output, within bounds.
func helpWidth() int {
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 {
		return min(max(width, leastHelp), mostHelp)
	}
	return defaultHelp
}

// printHelp prints what cobra prints, with wrapped prose and flags.
func printHelp(cmd *cobra.Command, _ []string) {
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	text := usageText(cmd, helpWidth())
	if about = strings.TrimSpace(about); about != "" {
		text = wrap(about, helpWidth()) + "\n\n" + text
	}
	_, _ = io.WriteString(cmd.OutOrStdout(), text) // nothing is left to do if it fails
}

func printUsage(cmd *cobra.Command) error {
	_, err := io.WriteString(cmd.OutOrStderr(), usageText(cmd, helpWidth()))
	return err
}

// usageText returns the sections of a command's help after its description, in cobra's form.
func usageText(cmd *cobra.Command, width int) string {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", cmd.CommandPath())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAliases:\n  %s\n", cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range cmd.Groups() {
		writeCommands(&b, cmd, g.ID, g.Title, width)
	}
	if cmd.HasAvailableSubCommands() {
		title := "Available Commands"
		if len(cmd.Groups()) > 0 {
			title = "Other commands"
		}
		writeCommands(&b, cmd, "", title, width)
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", wrapFlags(cmd.LocalFlags().FlagUsages(), width))
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(&b, "\nGlobal Flags:\n%s", wrapFlags(cmd.InheritedFlags().FlagUsages(), width))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n" + wrap(fmt.Sprintf("Use \"%s [command] --help\" for more information about a command.", cmd.CommandPath()), width) + "\n")
	}
	return b.String()
}

// writeCommands lists the subcommands of a group; "": those of none.
func writeCommands(b *strings.Builder, cmd *cobra.Command, group, title string, width int) {
	first := true
	for _, sub := range cmd.Commands() {
		if sub.GroupID != group || !sub.IsAvailableCommand() && sub.Name() != "help" {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n%s:\n", title)
			first = false
		}
		line := fmt.Sprintf("  %-*s  %s", sub.NamePadding(), sub.Name(), sub.Short)
		b.WriteString(wrapItem(line, 2+sub.NamePadding()+2, width))
	}
}

// flagIndent is where the meaning of a flag begins if it does not fit beside the flag.
const flagIndent = 10

// wrapFlags wraps pflag's lines. If the names of flags take much of the width, the meanings are below them.
func wrapFlags(lines string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		line = strings.TrimRight(line, "\n ")
		at := meaningOf(line)
		if at > width*2/5 {
			b.WriteString(strings.TrimRight(line[:at], " ") + "\n")
			line, at = strings.Repeat(" ", flagIndent)+line[at:], flagIndent
		}
		b.WriteString(wrapItem(line, at, width))
	}
	return b.String()
}

// meaningOf returns where the meaning begins in pflag's line of a flag: after at least three spaces.
func meaningOf(line string) int {
	flag := strings.TrimLeft(line, " ")
	name, rest, _ := strings.Cut(flag, "   ")
	return len(line) - len(flag) + len(name) + len("   ") + len(rest) - len(strings.TrimLeft(rest, " "))
}

// item is a paragraph, or a line of a list with the lines that continue it.
type item struct {
	indent int    // spaces before it
	hang   int    // spaces before its second and later lines: where its last column begins
	last   int    // length of its last line in the source
	text   string // on one line
}

// authorWidth is the width at which descriptions are written in the source. A line that the next word would have
// filled beyond it continues on the next line.
const authorWidth = 88

// wrap fills the paragraphs of a description, and wraps the lines of its lists, which are indented, below their last
// column.
func wrap(text string, width int) string {
	var b strings.Builder
	var cur *item
	flush := func() {
		if cur != nil {
			b.WriteString(wrapItem(cur.text, cur.hang, width))
			cur = nil
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " ")
		body := strings.TrimLeft(line, " ")
		indent := len(line) - len(body)
		switch {
		case body == "":
			flush()
			b.WriteByte('\n')
			continue
		case cur != nil && cur.continues(indent, body):
			cur.text += " " + body
		default:
			flush()
			cur = &item{indent: indent, hang: indent + column(body), text: line}
		}
		cur.last = len(line)
	}
	flush()
	return strings.TrimRight(b.String(), "\n")
}

// column returns where the second column of a line of a list begins; 0: it has one.
func column(body string) int {
	before, after, ok := strings.Cut(body, "  ")
	if !ok {
		return 0
	}
	return len(before) + 2 + len(after) - len(strings.TrimLeft(after, " "))
}

// continues reports whether the next line of the source continues the item.
func (i *item) continues(indent int, body string) bool {
	switch {
	case i.hang > i.indent:
		return indent == i.hang
	case indent != i.indent || column(body) > 0:
		return false
	case indent == 0:
		return true // a paragraph
	}
	first, _, _ := strings.Cut(body, " ")
	return i.last+1+len(first) > authorWidth
}

// wrapItem wraps one line, with hang spaces before all but the first. The text before hang stays as it is.
func wrapItem(line string, hang, width int) string {
	if hang > width*2/3 {
		hang = width / 3
	}
	var b strings.Builder
	head := line[:min(hang, len(line))]
	b.WriteString(head)
	at, empty := utf8.RuneCountInString(head), true // empty: no word after the head on this line
	for word := range strings.FieldsSeq(line[len(head):]) {
		n := utf8.RuneCountInString(word)
		switch {
		case !empty && at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", hang))
			at = hang
		case !empty:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at, empty = at+n, false
	}
	b.WriteByte('\n')
	return b.String()
}
