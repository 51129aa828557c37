package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envAnnotation on a flag holds the environment variables that may set it, first wins.
const envAnnotation = "moonsail_env"

// EnvFlags gives each flag defined so far on cmd an environment variable, and says so
// in its help: --http-addr is MOONSAIL_HTTP_ADDR. A flag on the command line wins.
func EnvFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[envAnnotation]) == 0 {
			EnvFlag(cmd, f.Name, "MOONSAIL_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
		}
	})
}

// offer has the shell offer these values of a flag.
func offer(cmd *cobra.Command, flag string, values ...string) {
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// EnvFlag lets the named environment variables, first that is set wins, set a flag.
func EnvFlag(cmd *cobra.Command, flag string, env ...string) {
	f := cmd.Flags().Lookup(flag)
	f.Usage += " [$" + strings.Join(env, ", $") + "]"
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[envAnnotation] = env
}

// flagsFromEnv sets the flags that the command line did not.
func flagsFromEnv(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil {
			return
		}
		for _, env := range f.Annotations[envAnnotation] {
			v, ok := lookup(env)
			if !ok || v == "" {
				continue
			}
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = usageError{fmt.Errorf("environment variable %s: %w", env, wrongValue(err))}
			}
			return
		}
	})
	return failed
}
