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

// wrongArgs explains which arguments a command takes; err is cobra's error, or the command's.
func wrongArgs(cmd *cobra.Command, args []string, err error) error {
	text := err.Error()
	ofCobra := false
	for _, begin := range []string{"accepts ", "requires at least ", "unknown command "} {
		ofCobra = ofCobra || strings.HasPrefix(text, begin)
	}
	switch {
	case !ofCobra:
		return UsageError{Err: err}
	case cmd.HasSubCommands() && len(args) > 0:
		return UsageError{Err: fmt.Errorf("%w%s", err, spelling.DidYouMean(args[0], commandNames(cmd)))}
	}
	if missing := missingArgs(cmd, args); missing != "" {
		return UsageError{Err: fmt.Errorf("%s missing: the form is '%s'%s", missing, cmd.UseLine(), firstExample(cmd))}
	}
	return UsageError{Err: fmt.Errorf("%s not what it takes: the form is '%s'", quotedArgs(args), cmd.UseLine())}
}

// missingArgs names what a command takes beyond the arguments that it was given, by its form; empty: nothing.
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

func firstExample(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	command, _, _ := strings.Cut(line, "  #")
	if command == "" {
		return ""
	}
	return fmt.Sprintf(", as in '%s'", strings.TrimSpace(command))
}

func quotedArgs(args []string) string {
	if len(args) == 1 {
		return fmt.Sprintf("%q is", args[0])
	}
	return fmt.Sprintf("%q are", args)
}

// commandNames are those of the commands below one.
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
		why = "is beyond what it may be"
	case kind == "duration":
		why = "is not a duration: use a number with a unit, for example 500ms, 30s or 5m"
	case strings.HasPrefix(kind, "uint"):
		why = "is not a whole number from 0 on"
	case strings.HasPrefix(kind, "int"):
		why = "is not a whole number"
	case strings.HasPrefix(kind, "float"):
		why = "is not a number"
	case kind == "bool":
		why = "is neither true nor false"
	default:
		return fmt.Errorf("--%s %q: %s", f.Name, wrong.GetValue(), why)
	}
	return fmt.Errorf("--%s %q %s", f.Name, wrong.GetValue(), why)
}

// nearFlag is a hint at the flag that was probably meant.
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
