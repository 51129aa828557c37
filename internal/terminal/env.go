package terminal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envAnnotation on a flag holds the environment variables that set it. The first one that is set applies.
const envAnnotation = "moonsail_env"

// setAnnotation on a flag holds the environment variable that its value is from.
const setAnnotation = "moonsail_set_by"

// EnvFlags gives each flag of cmd that has none an environment variable, for example MOONSAIL_HTTP_ADDR for --http-addr,
// and adds it to the flag's help. The command line takes precedence.
func EnvFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[envAnnotation]) == 0 {
			EnvFlag(cmd, f.Name, Variable(f.Name))
		}
	})
}

// Variable returns Moonsail's environment variable of a flag, for example MOONSAIL_HTTP_ADDR for http-addr.
func Variable(flag string) string {
	return "MOONSAIL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// VariablesOf returns the environment variables that set a flag. The first one that is set applies.
func VariablesOf(f *pflag.Flag) []string { return f.Annotations[envAnnotation] }

// SetBy returns the environment variable that a flag's value is from; "" if it is the default or from the command line.
func SetBy(f *pflag.Flag) string {
	if from := f.Annotations[setAnnotation]; len(from) > 0 {
		return from[0]
	}
	return ""
}

// linksAnnotation on a flag holds its environment variables that were ignored, because they are links to Services.
const linksAnnotation = "moonsail_links"

// LinksToServices returns the environment variables of cmd's flags that were ignored, because they are links to Services.
func LinksToServices(cmd *cobra.Command) (out []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { out = append(out, f.Annotations[linksAnnotation]...) })
	return out
}

// linksToService reports whether Kubernetes has set a variable to the address of a Service whose name begins like the variable's: for a
// Service envoy-status it sets ENVOY_STATUS_PORT=tcp://10.0.0.7:80 in each container of the namespace.
func linksToService(name, value string) bool {
	protocol, _, ok := strings.Cut(value, "://")
	return ok && strings.HasSuffix(name, "_PORT") && slices.Contains([]string{"tcp", "udp", "sctp"}, protocol)
}

// groupAnnotation on a flag holds the name of a group of flags that several commands share.
const groupAnnotation = "moonsail_group"

// Group puts flags of cmd into a group that several commands share. The reference page lists a group once.
func Group(cmd *cobra.Command, group string, flags ...string) {
	for _, name := range flags {
		annotate(cmd.Flags().Lookup(name), groupAnnotation, group)
	}
}

// GroupOf returns the group of a flag; "" if it has none.
func GroupOf(f *pflag.Flag) string {
	if group := f.Annotations[groupAnnotation]; len(group) > 0 {
		return group[0]
	}
	return ""
}

func annotate(f *pflag.Flag, key string, values ...string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[key] = values
}

// Offer adds values of a flag to the completion of shells.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// EnvFlag gives a flag environment variables, and adds them to its help. The first one that is set applies.
func EnvFlag(cmd *cobra.Command, flag string, env ...string) {
	f := cmd.Flags().Lookup(flag)
	f.Usage += " [$" + strings.Join(env, ", $") + "]"
	annotate(f, envAnnotation, env...)
}

// flagsFromEnv sets the flags that the command line did not set.
func flagsFromEnv(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil {
			return
		}
		for _, env := range VariablesOf(f) {
			v, ok := lookup(env)
			if !ok || v == "" {
				continue
			}
			if linksToService(env, v) {
				annotate(f, linksAnnotation, append(f.Annotations[linksAnnotation], env)...)
				continue
			}
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = UsageError{Err: fmt.Errorf("environment variable %s: %w", env, wrongValue(err))}
			}
			annotate(f, setAnnotation, env)
			return
		}
	})
	return failed
}
