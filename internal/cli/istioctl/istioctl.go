// Package istioctl has istioctl's names for commands of moonsail, so that scripts and habits continue to work. Where a name means
// the same, it is an alias of the command, or a command with istioctl's arguments. For the others, an error names the
// command of moonsail to use.
//
// docs/migrate-from-istio.md has the table.
package istioctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/configure"
	"github.com/moonsail/moonsail/internal/cli/inspect"
	"github.com/moonsail/moonsail/internal/cli/install"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	out := []*cobra.Command{newExperimentalCommand(), configure.NewValidateCommand()}
	for _, r := range refused {
		out = append(out, r.command())
	}
	return out
}

func newExperimentalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "experimental",
		Aliases: []string{"x", "exp"},
		Short:   "Commands that istioctl has under this name",
		Long: `Commands that istioctl has under this name, with its arguments. Moonsail's own commands say more:
'moonsail proxies', 'moonsail why' and 'moonsail wait'.`,
		Example: `  # Describe a Pod
  moonsail experimental describe pod reviews-v1-1.shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		inspect.NewAuthzCommand(), inspect.NewDescribeCommand(), inspect.NewInternalDebugCommand(), inspect.NewEnvoyStatsCommand(), inspect.NewIstioWaitCommand(),
		hidden(inspect.NewProxyStatusCommand()), hidden(inspect.NewVersionCommand()), hidden(install.NewPrecheckCommand()),
	)
	for _, r := range refusedExperimental {
		cmd.AddCommand(r.command())
	}
	return cmd
}

// hidden leaves a command out of help: it is listed elsewhere.
func hidden(cmd *cobra.Command) *cobra.Command {
	cmd.Hidden = true
	return cmd
}

// refusal is a command of istioctl that moonsail does not have.
type refusal struct {
	name    string
	aliases []string
	why     string // what to use instead, or why there is nothing
}

const (
	noAmbient  = "Moonsail has no ambient mode: its proxies are sidecars and gateways"
	oneCluster = "a control plane of Moonsail reads one cluster"
)

var refused = []refusal{
	{"admin", []string{"istiod"}, "use --log-level of 'moonsail serve' for the control plane's log, and 'moonsail proxy-config log PROXY' for Envoy's"},
	{"waypoint", nil, noAmbient},
	{"ztunnel-config", []string{"zc"}, noAmbient},
	{"create-remote-secret", nil, oneCluster},
	{"remote-clusters", nil, oneCluster},
	{"verify-install", nil, "use 'moonsail precheck', or 'moonsail install --dry-run' to compare an installation with its charts"},
	{"authz", nil, "use 'moonsail experimental authz check PROXY', or 'moonsail why FROM TO' for one call"},
	{"operator", nil, "use 'moonsail install' and 'moonsail upgrade'"},
	{"options", nil, "use 'moonsail COMMAND --help': each command has its own flags"},
}

var refusedExperimental = []refusal{
	{"metrics", []string{"m"}, "query the metric istio_requests_total in Prometheus, or open 'moonsail dashboard'"},
	{"check-inject", nil, "use 'moonsail inject -f FILE', which reports the objects without a sidecar and the reasons, or 'moonsail analyze'"},
	{"injector", nil, "use 'moonsail tag list', which has revisions, tags, and the namespaces that use them"},
	{"workload", nil, "start 'moonsail agent' on the machine with the name, namespace and service account of a WorkloadEntry"},
	{"config", nil, "set environment variables: 'moonsail COMMAND --help' names the variable of each flag"},
}

func (r refusal) command() *cobra.Command {
	return &cobra.Command{
		Use: r.name, Aliases: r.aliases, Hidden: true, Short: "Not a command of moonsail", DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return terminal.UsageError{Err: &terminal.UserError{What: fmt.Sprintf("%s: a command of istioctl only", cmd.Name()), Next: r.why}}
		},
	}
}
