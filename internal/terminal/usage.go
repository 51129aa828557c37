package terminal

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonsail/moonsail/internal/config/spelling"
)

// wrongArgs explains which arguments a command takes. err is from cobra or from the command.
func wrongArgs(cmd *cobra.Command, args []string, err error) error {
	text := err.Error()
	fromCobra := false
	for _, begin := range []string{"accepts ", "requires at least ", "unknown command "} {
		fromCobra = fromCobra || strings.HasPrefix(text, begin)
	}
	switch {
	case !fromCobra:
		return UsageError{Err: err}
	case cmd.HasSubCommands() && len(args) > 0:
		return UsageError{Err: fmt.Errorf("%w%s", err, spelling.DidYouMean(args[0], commandNames(cmd)))}
	}
	if missing := missingArgs(cmd, args); missing != "" {
		return UsageError{Err: fmt.Errorf("%s missing: use '%s'%s", missing, cmd.UseLine(), firstExample(cmd))}
	}
	return UsageError{Err: fmt.Errorf("%s: use '%s'", unexpectedArgs(args), cmd.UseLine())}
}

// missingArgs names the arguments in the command's usage line that args lacks; empty: none.
func missingArgs(cmd *cobra.Command, args []string) string {
	words := strings.Fields(cmd.Use)[1:]
	if len(args) >= len(words) {
		return ""
	}
	if words = words[len(args):]; len(words) == 1 {
		return words[0] + " is"
	}
	return strings.Join(words, " and ") + " are"
}

// missingFlags names the required flags that the command line lacks.
func missingFlags(cmd *cobra.Command) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && !f.Changed {
			names = append(names, "--"+f.Name)
		}
	})
	verb := "is"
	if len(names) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s missing: use '%s'", strings.Join(names, " and "), verb, cmd.UseLine())
}

// refuseUnknownTopics makes `help` fail for a command that does not exist. By default, cobra prints the help of the
// root with exit status 0.
func refuseUnknownTopics(root *cobra.Command) {
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Run, help.RunE = nil, func(_ *cobra.Command, topic []string) error {
			about, rest, err := root.Find(topic)
			if err != nil || len(rest) > 0 {
				return UsageError{Err: fmt.Errorf("unknown command %q%s", strings.Join(topic, " "), nearCommand(about, rest))}
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		}
	}
}

// nearCommand suggests the subcommand whose name is nearest to the first of the unknown words.
func nearCommand(cmd *cobra.Command, unknown []string) string {
	if cmd == nil || len(unknown) == 0 {
		return ""
	}
	return spelling.DidYouMean(unknown[0], commandNames(cmd))
}

func firstExample(cmd *cobra.Command) string {
	for line := range strings.Lines(cmd.Example) {
		command, _, _ := strings.Cut(line, "#") // the rest is a comment
		if command = strings.TrimSpace(command); command != "" {
			return fmt.Sprintf(", for example '%s'", command)
		}
	}
	return ""
}

func unexpectedArgs(args []string) string {
	if len(args) == 1 {
		return fmt.Sprintf("unexpected argument %q", args[0])
	}
	return fmt.Sprintf("wrong arguments %q", args)
}

// commandNames returns the names and aliases of the subcommands of cmd.
func commandNames(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
			names = append(names, sub.Aliases...)
		}
	}
	return names
}

// wrongValue explains which values a flag takes if Go's error does not; otherwise it returns err.
func wrongValue(err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err
	}
	f := wrong.GetFlag()
	why := wrong.Unwrap().Error()
	switch kind := f.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		why = "out of range"
	case kind == "duration":
		why = "not a duration: use a number with a unit, for example 500ms, 30s or 5m"
	case strings.HasPrefix(kind, "uint"):
		why = "not a whole number: use 0 or more"
	case strings.HasPrefix(kind, "int"):
		why = "not a whole number"
	case strings.HasPrefix(kind, "float"):
		why = "not a number"
	case kind == "bool":
		why = "not a boolean: use true or false"
	}
	return fmt.Errorf("--%s %q: %s", f.Name, wrong.GetValue(), why)
}

// nearFlag suggests the flag whose name is nearest to an unknown one.
func nearFlag(cmd *cobra.Command, err error) string {
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return spelling.DidYouMean("--"+name, names)
}
