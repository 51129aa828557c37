package terminal

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// UserError is the one form of errors that people see: what went wrong, where, and
// what to do next. Any command may return one (wrapped or not); other errors are
// shown as their text alone.
type UserError struct {
	What  string // one sentence without a full stop
	Where string // file:line, object, address; may be empty
	Next  string // what the reader can do; may be empty
	Err   error  // the cause, shown after What; may be nil
}

// Error is the same on one line, for logs and tests.
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

// Unwrap is the cause.
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

// ExitCode ends the process with that status and prints nothing: the command has already
// printed its result, as analyze does.
type ExitCode int

// Error is for logs and tests.
func (c ExitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// UsageError is a wrong flag or argument: exit status 2 and a hint at the help.
type UsageError struct{ Err error }

// Error is the text of Err.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap is Err.
func (e UsageError) Unwrap() error { return e.Err }

// argsAreUsage makes failures of a command's argument check, and of those below it,
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

// noFilesForNoArgs takes files out of the completion of commands without arguments.
func noFilesForNoArgs(cmd *cobra.Command) {
	if !strings.Contains(cmd.Use, " ") && cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		noFilesForNoArgs(sub)
	}
}

// reportError prints err for people.
func reportError(w io.Writer, err error) {
	s := StyleFor(w)
	var ue *UserError
	if !errors.As(err, &ue) {
		fmt.Fprintf(w, "%s %s\n", s.Bad("error:"), err)
		return
	}
	fmt.Fprintf(w, "%s %s\n", s.Bad("error:"), ue.headline())
	if ue.Where != "" {
		fmt.Fprintf(w, "  %s %s\n", s.Dim("where:"), ue.Where)
	}
	if ue.Next != "" {
		fmt.Fprintf(w, "  %s  %s\n", s.Dim("next:"), ue.Next)
	}
}
