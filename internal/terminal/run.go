package terminal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2   // wrong flags or arguments
	ExitInterrupted = 130 // by Ctrl-C or a signal, as shells report it: 128 + SIGINT
)

// Execute runs the command in the arguments of the process and returns the exit status.
// The context of commands ends at SIGINT or SIGTERM. A second signal kills the process.
func Execute(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Run(ctx, root)
}

// Run executes a command tree that SetUp has prepared, prints its error in the form of UserError, and returns the
// exit status.
func Run(ctx context.Context, root *cobra.Command) int {
	prepare(root)
	cmd, err := root.ExecuteContextC(ctx)
	var exit ExitCode
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return ExitInterrupted // the user knows why: no message
	}
	w := cmd.ErrOrStderr()
	var status StatusError
	switch {
	case isUsage(cmd, err):
		reportError(w, asCalled(cmd, wrongUsage(cmd, err)))
		return ExitUsage
	case errors.As(err, &status):
		reportError(w, asCalled(cmd, status.Err))
		return status.Status
	}
	reportError(w, asCalled(cmd, err))
	return ExitFailed
}

// asCalled puts an error's advice into the form of Hint.
func asCalled(cmd *cobra.Command, err error) error {
	var ue *UserError
	if !errors.As(err, &ue) {
		return err
	}
	copied := *ue
	copied.Next = Hint(cmd, copied.Next)
	return &copied
}

// isUsage reports whether an error is due to wrong flags or arguments. A server may refuse them, too: its
// answer then has the method RefusedAsWrong.
func isUsage(cmd *cobra.Command, err error) bool {
	var usage UsageError
	var refused interface{ RefusedAsWrong() bool }
	return errors.As(err, &usage) || errors.As(err, &refused) && refused.RefusedAsWrong() || lacksFlag(cmd, err)
}

// wrongUsage returns a usage error in the form that users see.
func wrongUsage(cmd *cobra.Command, err error) *UserError {
	shown := &UserError{What: Hint(cmd, err.Error())}
	var ue *UserError
	switch {
	case errors.As(err, &ue):
		copied := *ue
		shown = &copied
	case lacksFlag(cmd, err):
		shown.What = missingFlags(cmd)
	}
	if shown.Next == "" {
		shown.Next = fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	}
	return shown
}

// SetUp makes a command the root of a command line: Run prints its errors, environment variables set flags that
// the command line does not set (see EnvFlag), and control characters in output become visible (see Raw).
func SetUp(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		showControls(cmd)
		return flagsFromEnv(cmd, os.LookupEnv)
	}
	root.SetFlagErrorFunc(wrongFlag)
	root.SetHelpFunc(printHelp)
	root.SetUsageFunc(printUsage)
}

// prepare turns wrong arguments into usage errors. By default, if a command only has subcommands,
// cobra answers a wrong argument with help and exit status 0. The completion
// command that cobra adds keeps the output of the root at this moment.
func prepare(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	refuseUnknownTopics(root)
	describeBashCompletion(root)
	for _, cmd := range root.Commands() {
		if !cmd.Runnable() {
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	argsAreUsage(root)
	noFilesForNoArgs(root)
}

// describeBashCompletion replaces cobra's help, which does not state what happens without the package bash-completion.
func describeBashCompletion(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || cmd.Name() != "bash" {
		return
	}
	name := root.Name()
	cmd.Long = `Generate the autocompletion script for bash.

The script needs the package bash-completion. Without it, the first TAB fails with
"_get_comp_words_by_ref: command not found". To install it:

  Debian, Ubuntu   apt-get install bash-completion
  Fedora, RHEL     dnf install bash-completion
  macOS            brew install bash-completion@2

Then start a new shell or, on Linux, load it with 'source /usr/share/bash-completion/bash_completion'.`
	cmd.Example = `  # Complete in this shell
  source <(` + name + ` completion bash)

  # Complete in each new shell, on Linux and on macOS
  ` + name + ` completion bash > /etc/bash_completion.d/` + name + `
  ` + name + ` completion bash > $(brew --prefix)/etc/bash_completion.d/` + name
}

// lacksFlag reports whether an error is cobra's for a missing required flag, which has no type.
func lacksFlag(cmd *cobra.Command, err error) bool {
	required := cmd.ValidateRequiredFlags()
	return required != nil && err.Error() == required.Error()
}

// wrongFlag explains a wrong flag. For a command that only has subcommands, it explains the word before the flag
// instead: the flag may belong to the subcommand that the user meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		if unknown := cmd.ValidateArgs(words); unknown != nil {
			return unknown
		}
	}
	return UsageError{Err: fmt.Errorf("%w%s", wrongValue(err), nearFlag(cmd, err))}
}
