package terminal

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// UserError is an error in the form that users see: the problem, where it is, and
// what to do next. Any command may return one, also wrapped. Run prints only the text of other errors.
type UserError struct {
	What  string // the problem, without a full stop
	Where string // file:line, object, address; may be empty
	Next  string // what to do; may be empty
	Err   error  // the cause, shown after What; may be nil
}

// Error returns all of it on one line, for logs and tests.
func (e *UserError) Error() string {
	s := e.headline()
	if e.Where != "" {
		s = e.Where + ": " + s
	}
	if e.Next != "" {
		s += " (" + e.Next + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *UserError) Unwrap() error { return e.Err }

func (e *UserError) headline() string {
	switch {
	case e.Err == nil:
		return e.What
	case e.What == "":
		return e.Err.Error()
	}
	return e.What + ": " + e.Err.Error()
}

// ExitCode ends the process with this status. Run prints nothing: the command has
// printed its result already, as analyze does.
type ExitCode int

// Error returns a text for logs and tests.
func (c ExitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// StatusError is an error with an exit status of its own, for commands whose status 1 is an answer, as of diff.
type StatusError struct {
	Err    error
	Status int
}

// Error returns the text of Err.
func (e StatusError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e StatusError) Unwrap() error { return e.Err }

// UsageError is a wrong flag or argument. Run exits with status 2 and refers to --help.
type UsageError struct{ Err error }

// Error returns the text of Err.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e UsageError) Unwrap() error { return e.Err }

// argsAreUsage turns errors of the argument checks of a command and its subcommands into
// usage errors.
func argsAreUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return wrongArgs(cmd, args, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		argsAreUsage(sub)
	}
}

// noFilesForNoArgs removes files from the completion of commands without arguments.
func noFilesForNoArgs(cmd *cobra.Command) {
	if !strings.Contains(cmd.Use, " ") && cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		noFilesForNoArgs(sub)
	}
}

// reportError prints err for users. It may have names that others chose, which a terminal must not obey.
func reportError(w io.Writer, err error) {
	s := StyleFor(w)
	shown := func(text string) string { return escapeBut(text, "\n\t") }
	var ue *UserError
	if !errors.As(err, &ue) {
		fmt.Fprintf(w, "%s %s\n", s.Bad("error:"), shown(err.Error()))
		return
	}
	fmt.Fprintf(w, "%s %s\n", s.Bad("error:"), shown(ue.headline()))
	if ue.Where != "" {
		fmt.Fprintf(w, "  %s %s\n", s.Dim("where:"), shown(ue.Where))
	}
	if ue.Next != "" {
		fmt.Fprintf(w, "  %s  %s\n", s.Dim("next:"), shown(ue.Next))
	}
}
