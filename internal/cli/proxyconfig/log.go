package proxyconfig

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// defaultLogLevel is what istioctl sets with --reset.
const defaultLogLevel = "warning"

func newLogCommand() *cobra.Command {
	var f flags
	var levels []string
	var reset bool
	cmd := &cobra.Command{
		Use:     "log PROXY",
		Aliases: []string{"o"},
		Short:   "Show or set the levels of the loggers of a proxy's Envoy",
		Long: `Show the loggers of a proxy's Envoy with their levels. --level sets levels first: for all loggers, or
for one as LOGGER:LEVEL. They last until Envoy ends. Envoy's log is in the output of 'moonsail agent'.
'moonsail proxy-config --help' describes how Envoy is asked.

Levels can be set only at Envoy's admin interface, not through the agent: the token for agents' pages is
known to every workload, and at level debug Envoy logs the headers of requests.`,
		Example: `  # Show the levels
  moonsail proxy-config log reviews-v1-1.shop

  # Set the level of all loggers
  moonsail proxy-config log reviews-v1-1.shop --level warning

  # Set the levels of two loggers
  moonsail proxy-config log reviews-v1-1.shop --level rbac:debug,jwt:trace`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reset {
				levels = []string{defaultLogLevel}
			}
			return f.log(cmd, args[0], levels)
		},
	}
	f.addFlags(cmd, "")
	f.out.AddFlag(cmd)
	cmd.Flags().StringSliceVar(&levels, "level", nil, "`LEVEL` of all loggers, or LOGGER:LEVEL; levels are "+strings.Join(envoy.LogLevels, ", "))
	terminal.Offer(cmd, "level", envoy.LogLevels...)
	cmd.Flags().BoolVar(&reset, "reset", false, "set the level of all loggers to "+defaultLogLevel)
	cmd.MarkFlagsMutuallyExclusive("level", "reset")
	return cmd
}

func (f *flags) log(cmd *cobra.Command, proxy string, levels []string) error {
	changes, err := loggerChanges(levels)
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	c, err := f.find(cmd.Context(), proxy)
	if err != nil {
		return err
	}
	now := map[string]string{}
	if len(changes) > 0 || !f.byAgent(cmd.Context(), c, "logging", &now) {
		if now, err = f.logAtAdmin(cmd.Context(), proxy, c, levels, changes); err != nil {
			return err
		}
	}
	names := slices.Sorted(maps.Keys(now))
	return f.out.Print(cmd.OutOrStdout(), client.List{Value: now, Names: func() []string { return names }, Table: func(w io.Writer) error {
		t := terminal.NewTable("LOGGER", "LEVEL")
		for _, name := range names {
			t.Row(name, now[name])
		}
		return t.Write(w)
	}})
}

// logAtAdmin sets levels at the admin interface, if there are changes, and returns the levels of all loggers.
func (f *flags) logAtAdmin(ctx context.Context, proxy string, c *comparedConfig, levels []string, changes []url.Values) (map[string]string, error) {
	address := f.adminOf(c.ProxyConfig)
	if address == "" {
		return nil, f.unreached(proxy, c)
	}
	admin := envoy.NewAdmin(address)
	defer admin.Close()
	now, err := admin.Logging(ctx, nil)
	if err == nil {
		err = checkLoggers(levels, now)
	}
	for i := 0; err == nil && i < len(changes); i++ {
		now, err = admin.Logging(ctx, changes[i])
	}
	if err != nil {
		return nil, unreachable(address, err, "set --admin to its admin interface")
	}
	return now, nil
}

// checkLoggers checks that Envoy has the loggers.
func checkLoggers(levels []string, known map[string]string) error {
	for _, one := range levels {
		name, _, named := strings.Cut(strings.TrimSpace(one), ":")
		if _, ok := known[name]; named && !ok && name != "all" {
			hint := spelling.DidYouMean(name, slices.Collect(maps.Keys(known)))
			return terminal.UsageError{Err: fmt.Errorf("--level %q: Envoy has no logger %q%s", one, name, cmp.Or(hint, ": list them without --level"))}
		}
	}
	return nil
}

// loggerChanges returns the requests that set levels: first for all loggers, then for single ones.
func loggerChanges(levels []string) ([]url.Values, error) {
	var out []url.Values
	var single []string
	for _, one := range levels {
		logger, level, named := strings.Cut(strings.TrimSpace(one), ":")
		if !named {
			logger, level = "all", logger
		}
		if level == "warn" {
			level = "warning"
		}
		if !slices.Contains(envoy.LogLevels, level) {
			return nil, fmt.Errorf("--level %q: unknown level %q: use one of %s, as LEVEL or LOGGER:LEVEL", one, level, strings.Join(envoy.LogLevels, ", "))
		}
		if logger == "all" {
			out = append(out, url.Values{"level": {level}})
		} else {
			single = append(single, logger+":"+level)
		}
	}
	if len(single) > 0 {
		out = append(out, url.Values{"paths": {strings.Join(single, ",")}})
	}
	return out, nil
}
