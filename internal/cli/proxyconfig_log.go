package cli

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

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// newProxyLogCommand is "moonsail proxy-config log".
func newProxyLogCommand() *cobra.Command {
	var f proxyConfigFlags
	var levels []string
	cmd := &cobra.Command{
		Use:     "log PROXY",
		Aliases: []string{"o"},
		Short:   "The levels of the loggers of a proxy's Envoy, or set them",
		Long: `Lists the loggers of the Envoy of a proxy (by name.namespace or node id) with their levels, after it has set those
that --level gives, until Envoy ends: trace, debug, info, warning, error, critical or off, for all loggers or, behind
its name and a colon, for one. What they log is in the output of 'moonsail agent'.

` + askedBy + `
` + forwarded("log") + `

Levels are set at Envoy's admin interface alone, not by its agent: what opens agents' pages to the control plane is known to
who runs any workload, and at debug Envoy logs requests with their headers.`,
		Example: `  moonsail proxy-config log reviews-v1-1.shop
  moonsail proxy-config log reviews-v1-1.shop --level warning
  moonsail proxy-config log reviews-v1-1.shop --level rbac:debug,jwt:trace -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.log(cmd, args[0], levels) },
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().StringVar(&f.admin, "admin", "", "`ADDRESS` of the admin interface of the proxy's Envoy")
	cmd.Flags().StringSliceVar(&levels, "level", nil, "`LEVEL` of all loggers, or LOGGER:LEVEL; several with commas between them")
	terminal.Offer(cmd, "level", envoyLevels...)
	cmd.ValidArgsFunction = f.client.proxyNames(1)
	return cmd
}

func (f *proxyConfigFlags) log(cmd *cobra.Command, proxy string, levels []string) error {
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
	return f.out.Print(cmd.OutOrStdout(), now, func(w io.Writer) error {
		t := terminal.NewTable("LOGGER", "LEVEL")
		for _, name := range slices.Sorted(maps.Keys(now)) {
			t.Row(name, now[name])
		}
		return t.Write(w)
	})
}

// logAtAdmin sets levels, where there are changes, and gives those that Envoy has then.
func (f *proxyConfigFlags) logAtAdmin(ctx context.Context, proxy string, c *comparedConfig, levels []string, changes []url.Values) (map[string]string, error) {
	address := f.adminOf(c.ProxyConfig)
	if address == "" {
		return nil, f.unreached(proxy, c)
	}
	admin := envoy.NewAdmin(address)
	defer admin.Close()
	now, err := admin.Logging(ctx, nil)
	if err == nil {
		err = knownLoggers(levels, now)
	}
	for i := 0; err == nil && i < len(changes); i++ {
		now, err = admin.Logging(ctx, changes[i])
	}
	if err != nil {
		return nil, f.unasked(address, err, "say where its admin interface is with --admin")
	}
	return now, nil
}

var envoyLevels = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}

// knownLoggers finds a name that Envoy does not have.
func knownLoggers(levels []string, known map[string]string) error {
	for _, one := range levels {
		name, _, named := strings.Cut(strings.TrimSpace(one), ":")
		if _, ok := known[name]; named && !ok && name != "all" {
			hint := spelling.DidYouMean(name, slices.Collect(maps.Keys(known)))
			return terminal.UsageError{Err: fmt.Errorf("--level %q: Envoy has no logger %q%s", one, name, cmp.Or(hint, "; without --level all are listed"))}
		}
	}
	return nil
}

// loggerChanges are the requests that set levels: first that of all, then those of single loggers.
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
		if !slices.Contains(envoyLevels, level) {
			return nil, fmt.Errorf("--level %q: unknown level %q: use one of %s, as LEVEL or LOGGER:LEVEL", one, level, strings.Join(envoyLevels, ", "))
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
