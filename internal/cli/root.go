// Package cli is the command line: a file or a few a subcommand, and what they share (the
// form of errors, output formats, progress, environment variables of flags).
//
// Commands write results to cmd.OutOrStdout and everything else (progress, logs,
// errors) to cmd.ErrOrStderr, so that results can be piped.
package cli

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
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // wrong flags or arguments
)

// Execute runs the command that the process was started with and gives the exit status.
// The context of commands ends at SIGINT or SIGTERM; a second signal kills at once.
func Execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return run(ctx, NewRootCommand())
}

// run executes a command tree and reports what went wrong in the one form of errors.
func run(ctx context.Context, root *cobra.Command) int {
	prepare(root)
	cmd, err := root.ExecuteContextC(ctx)
	var exit ExitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitFailed // the user interrupted: nothing to explain
	}
	w := cmd.ErrOrStderr()
	var usage usageError
	if errors.As(err, &usage) || isRefusedAsWrong(err) || lacksFlag(cmd, err) {
		reportError(w, &UserError{What: err.Error(), Next: fmt.Sprintf("see '%s --help'", cmd.CommandPath())})
		return exitUsage
	}
	reportError(w, err)
	return exitFailed
}

// prepare makes wrong arguments usage errors. Commands that only have others would answer a wrong one of these with
// their help, and exit status 0; so would cobra's own, which keeps the root's output as it is now.
func prepare(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if !cmd.Runnable() {
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	argsAreUsage(root)
	noFilesForNoArgs(root)
}

// lacksFlag tells whether an error is that a required flag was not given, which has no type of its own.
func lacksFlag(cmd *cobra.Command, err error) bool {
	required := cmd.ValidateRequiredFlags()
	return required != nil && err.Error() == required.Error()
}

// wrongFlag is what is wrong where a flag is: of a command that only has others, the word before the flag, if there is
// one, as the flag may well be one of the command that was meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		if unknown := cmd.ValidateArgs(words); unknown != nil {
			return unknown
		}
	}
	return usageError{fmt.Errorf("%w%s", wrongValue(err), nearFlag(cmd, err))}
}

// NewRootCommand is the command tree.
func NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "moonsail",
		Short: "A service mesh in which every millisecond is accounted for",
		Long: `Moonsail is a service mesh: a control plane that turns Kubernetes and Istio
resources into Envoy configuration, and an agent that runs Envoy sidecars.`,
		Example: `  moonsail demo                     # a whole mesh on this machine, in about a minute
  moonsail serve --config DIR       # a control plane on a directory of YAML
  moonsail analyze DIR              # what is wrong in a directory of YAML
  moonsail changes                  # where the time of each change went`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return flagsFromEnv(cmd, os.LookupEnv) },
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(wrongFlag)
	for _, n := range commands {
		root.AddCommand(n())
	}
	return root
}
