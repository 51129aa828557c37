package agent

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sidecar "github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
	"github.com/moonsail/moonsail/internal/terminal"
)

// interceptFlags are the flags of the rules that redirect a workload's connections to its sidecar.
type interceptFlags struct {
	settings intercept.Settings
	backend  string
	on       bool // the agent sets the rules while it runs

	resolvConf string

	// of `moonsail agent intercept`
	ipv6      string
	addresses []string
}

const modeFlag = "interception-mode"

// add adds the flags that `moonsail agent` and `moonsail agent intercept` share, from the table intercept.List, except those that cmd
// has already.
func (f *interceptFlags) add(cmd *cobra.Command) {
	f.settings = intercept.Default()
	rows := intercept.List()
	for i := range rows {
		row := &rows[i]
		if cmd.Flags().Lookup(row.Flag) != nil {
			continue
		}
		usage := row.Usage
		if len(row.Annotations) > 0 {
			usage += " (annotation " + row.Annotations[0] + ")"
		}
		v := row.Value(&f.settings)
		cmd.Flags().StringVar(v, row.Flag, *v, usage)
		if row.Env != "" {
			terminal.EnvFlag(cmd, row.Flag, row.Env)
		}
		if row.Flag != modeFlag { // of `moonsail agent`, it has another default
			terminal.Group(cmd, "Interception", row.Flag)
		}
	}
	cmd.Flags().StringVar(&f.backend, "intercept-with", string(intercept.Auto), "`BACKEND` that sets the rules: "+strings.Join(intercept.Backends(), ", "))
	terminal.Offer(cmd, "intercept-with", intercept.Backends()...)
	terminal.Group(cmd, "Interception", "intercept-with")
}

func (f *interceptFlags) check() error {
	if slices.Contains(intercept.Backends(), f.backend) {
		return nil
	}
	return terminal.UsageError{Err: fmt.Errorf("--intercept-with %q: unknown backend: use one of %s", f.backend, strings.Join(intercept.Backends(), ", "))}
}

// addTo adds the flags of `moonsail agent`.
func (f *interceptFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.resolvConf, "resolv-conf", "", "`FILE` with the servers whose questions are captured, and to which the DNS proxy forwards names outside the mesh "+
		"(default "+intercept.ResolvConf+")")
	cmd.Flags().BoolVar(&f.on, "intercept", false, "intercept the connections of this network namespace while the agent runs; Envoy then runs as --proxy-uid")
	f.add(cmd)
}

// into adds the flags to an agent's configuration. Envoy runs as a separate user if the
// agent sets the rules, or if --proxy-uid is set.
func (f *interceptFlags) into(cmd *cobra.Command, c *sidecar.Config) error {
	if err := f.check(); err != nil {
		return err
	}
	c.Intercept = sidecar.Intercept{Rules: f.on, Settings: f.settings, Backend: intercept.Backend(f.backend), ResolvConf: f.resolvConf}
	if !f.on && !cmd.Flags().Changed("proxy-uid") {
		return nil
	}
	uid, err := parseID("proxy-uid", f.settings.ProxyUID)
	if err != nil {
		return err
	}
	gid, err := parseID("proxy-gid", f.settings.ProxyGID)
	c.Intercept.User = &envoy.User{UID: uid, GID: gid}
	return err
}

// parseID parses the id of the user or group that Envoy runs as.
func parseID(flag, text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		return 0, terminal.UsageError{Err: fmt.Errorf("--%s %q: not one id above 0: Envoy runs as one user and group, for example %d", flag, text, intercept.ProxyID)}
	}
	return uint32(n), nil
}

// newInterceptCommand returns the command `moonsail agent intercept`.
func newInterceptCommand() *cobra.Command {
	f := &interceptFlags{}
	var undo, dry, check bool
	cmd := &cobra.Command{
		Use:   "intercept",
		Short: "Redirect the connections of this network namespace to a sidecar",
		Long: `Set the rules that redirect the connections of this network namespace to a sidecar, and exit, as an
init container does. The rules replace those that the command has set before. 'moonsail agent
--intercept' sets the same rules for as long as the agent runs.

Inbound connections go to port 15006 and outbound connections to port 15001, as the mesh's
proxyInboundListenPort and proxyListenPort. Exempt are connections of Envoy's user and group,
connections to loopback addresses, the sidecar's ports 15020, 15021, 15090 and 15008, and what the
flags exclude.

With --check, the command sets nothing. It waits up to 5 s until rules of a CNI plugin are in force,
and needs no privileges. If they are not, its exit status is 126, as that of Istio's
istio-validation.

The command needs CAP_NET_ADMIN. It sets all nftables rules at once, without another program. If
the kernel has no nftables, it runs iptables-restore and ip6tables-restore.`,
		Example: `  # Exempt a port and a range of addresses
  moonsail agent intercept --exclude-inbound-ports 9091 --exclude-outbound-ip-ranges 10.0.0.0/8

  # Print the rules
  moonsail agent intercept --interception-mode TPROXY --dry-run

  # Remove the rules
  moonsail agent intercept --undo`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if undo {
				return intercept.Undo(cmd.Context())
			}
			c, err := f.config()
			if err != nil {
				return err
			}
			if check {
				return checkInForce(cmd, c)
			}
			return f.apply(cmd, c, dry)
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "remove all rules that the command has set")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the rules without setting them")
	cmd.Flags().BoolVar(&check, "check", false, "check that the rules of a CNI plugin are in force, without setting any")
	cmd.Flags().StringVar(&f.ipv6, "ipv6", "auto", "intercept IPv6: true, false, or auto for true if the workload has an IPv6 address")
	cmd.Flags().StringSliceVar(&f.addresses, "ip", nil, "IP `ADDRESSES` of the workload, for --ipv6=auto (default: those of the host)")
	terminal.EnvFlag(cmd, "ip", "INSTANCE_IP")
	cmd.Flags().StringVar(&f.resolvConf, "resolv-conf", intercept.ResolvConf, "`FILE` with the DNS servers whose questions --capture-dns redirects")
	f.add(cmd)
	terminal.EnvFlags(cmd)
	return cmd
}

// apply sets the rules, or prints them.
func (f *interceptFlags) apply(cmd *cobra.Command, c *intercept.Config, dry bool) error {
	if err := c.CaptureServersOf(f.resolvConf); err != nil {
		return err
	}
	if dry {
		return writeRules(terminal.Raw(cmd.OutOrStdout()), c, intercept.Backend(f.backend))
	}
	with, err := intercept.Apply(cmd.Context(), c, intercept.Backend(f.backend))
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "interception is on (mode %s, %s, IPv6 %t)\n", c.Mode, with, c.IPv6)
	return nil
}

// Of --check, as in Istio.
const (
	exitNotInForce terminal.ExitCode = 126
	checkWithin                      = 5 * time.Second
)

// checkInForce waits until rules that something else sets are in force.
func checkInForce(cmd *cobra.Command, c *intercept.Config) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), checkWithin)
	defer cancel()
	err := intercept.Check(ctx, c)
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "interception is on (mode %s)\n", c.Mode)
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "error: %v within %v: check that a Pod of the CNI plugin's DaemonSet runs on this node; it repairs this Pod\n", err, checkWithin)
	return exitNotInForce
}

func (f *interceptFlags) config() (*intercept.Config, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	c, err := f.settings.Parse()
	if err != nil {
		return nil, terminal.UsageError{Err: err}
	}
	switch f.ipv6 {
	case "auto":
		c.IPv6 = intercept.NeedsIPv6(f.addresses)
	case "true", "false":
		c.IPv6 = f.ipv6 == "true"
	default:
		return nil, terminal.UsageError{Err: fmt.Errorf("--ipv6 %q: unknown value: use true, false or auto", f.ipv6)}
	}
	return c, nil
}

// writeRules prints the rules in the form of a backend.
func writeRules(w io.Writer, c *intercept.Config, b intercept.Backend) error {
	rules := intercept.Plan(c)
	if b != intercept.IPTables {
		_, err := io.WriteString(w, rules.NFT())
		return err
	}
	if _, err := fmt.Fprintf(w, "# iptables-restore --noflush\n%s", rules.IPTables(intercept.IP4, "")); err != nil || !c.IPv6 {
		return err
	}
	_, err := fmt.Fprintf(w, "# ip6tables-restore --noflush\n%s", rules.IPTables(intercept.IP6, ""))
	return err
}
