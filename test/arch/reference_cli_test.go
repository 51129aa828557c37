package arch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonsail/moonsail/internal/cli"
	labcli "github.com/moonsail/moonsail/internal/lab/cli"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// TestCommandReference holds docs/reference/cli.md to the command trees.
func TestCommandReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Command line

This page lists every command with its flags, environment variables and examples. Each command prints the same with ` + "`--help`" + `.

- A flag on the command line takes precedence over its environment variable.
- ` + "`-o json` and `-o yaml`" + ` print results for programs. Results go to standard output; progress, logs and errors go to standard error.
- Exit status 0 is success, 1 a failure, 2 a wrong flag or argument, and 130 an interruption (Ctrl-C). Commands with other statuses list them.

`)
	for _, root := range commandTrees() {
		contents(&b, root)
	}
	shared := &strings.Builder{}
	body := &strings.Builder{}
	for _, root := range commandTrees() {
		describe(body, shared, root)
	}
	b.WriteString(shared.String() + body.String())
	text := strings.ReplaceAll(b.String(), envoy.Version, "VERSION") // which only one file names
	holdReference(t, "cli.md", text)
}

// commandTrees returns the root command of each program.
func commandTrees() []*cobra.Command {
	return []*cobra.Command{cli.NewRootCommand(), labcli.NewRootCommand()}
}

func contents(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "## Commands of %s\n\n| Command | Use |\n|---|---|\n", cmd.Name())
	everyCommand(cmd, func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		fmt.Fprintf(b, "| [`%s`](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), cell(cmd.Short))
	})
	b.WriteString("\n")
}

// everyCommand visits a command and those below it that help lists.
func everyCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			everyCommand(sub, visit)
		}
	}
}

// describe writes a section for each command, and to shared one for each group of flags that commands share.
func describe(b, shared *strings.Builder, root *cobra.Command) {
	groups := map[string]bool{}
	everyCommand(root, func(cmd *cobra.Command) {
		fmt.Fprintf(b, "## %s\n\n%s.\n\n", cmd.CommandPath(), strings.TrimSuffix(cell(cmd.Short), "."))
		fmt.Fprintf(b, "```\n%s\n```\n\n", strings.TrimSuffix(cmd.UseLine(), " [flags]")+flagsHint(cmd))
		if cmd.Long != "" {
			fmt.Fprintf(b, "```text\n%s\n```\n\n", strings.TrimSpace(cmd.Long))
		}
		flagTable(b, shared, groups, cmd)
		if cmd.Example != "" {
			fmt.Fprintf(b, "Examples:\n\n```sh\n%s\n```\n\n", strings.TrimRight(cmd.Example, "\n "))
		}
	})
}

func flagsHint(cmd *cobra.Command) string {
	if cmd.HasAvailableFlags() {
		return " [flags]"
	}
	return ""
}

const flagHeading = "| Flag | Default | Environment | Meaning |\n|---|---|---|---|\n"

// flagTable lists the flags of a command. A group of flags is listed in shared, once.
func flagTable(b, shared *strings.Builder, listed map[string]bool, cmd *cobra.Command) {
	var rows strings.Builder
	grouped := map[string]string{}
	var groups []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		group := terminal.GroupOf(f)
		switch {
		case f.Hidden || f.Name == "help":
		case group == "":
			rows.WriteString(flagRow(f))
		default:
			if grouped[group] == "" {
				groups = append(groups, group)
			}
			grouped[group] += flagRow(f)
		}
	})
	if rows.Len() > 0 {
		b.WriteString(flagHeading + rows.String() + "\n")
	}
	for _, group := range groups {
		anchor := strings.ReplaceAll(strings.ToLower(group), " ", "-")
		fmt.Fprintf(b, "Shared flags: [%s](#%s).\n\n", strings.ToLower(group), anchor)
		if !listed[group] {
			listed[group] = true
			fmt.Fprintf(shared, "## %s\n\nSeveral commands share these flags.\n\n%s%s\n", group, flagHeading, grouped[group])
		}
	}
}

func flagRow(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	kind, usage := pflag.UnquoteUsage(f)
	usage, env, _ := strings.Cut(usage, " [$")
	env, rest, _ := strings.Cut(env, "]")
	usage += rest
	if env != "" {
		env = "`" + strings.ReplaceAll(strings.ReplaceAll(env, "$", ""), ", ", "`, `") + "`"
	}
	if kind != "" {
		name += " " + kind
	}
	value := f.DefValue
	if value == "[]" || value == "false" || value == "0" || value == "0s" || value == "" {
		value = ""
	} else {
		value = "`" + value + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, cell(value), env, cell(usage))
}
