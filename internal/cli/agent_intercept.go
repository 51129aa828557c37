package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
	"github.com/moonsail/moonsail/internal/terminal"
)

// interceptFlags are those about the rules that lead a workload's connections to its sidecar.
type interceptFlags struct {
	settings intercept.Settings
	backend  string
	on       bool // set them with the sidecar

	resolvConf string
}

// add adds what both commands have, as rows of intercept.List, but for flags that a command
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
			usage += "; annotation " + row.Annotations[0] + " of the pod"
		}
		v := row.Value(&f.settings)
		cmd.Flags().StringVar(v, row.Flag, *v, usage)
		if row.Env != "" {
			terminal.EnvFlag(cmd, row.Flag, row.Env)
		}
	}
	cmd.Flags().StringVar(&f.backend, "intercept-with", string(intercept.Auto), "what the rules are set with: "+strings.Join(intercept.Backends(), ", "))
	terminal.Offer(cmd, "intercept-with", intercept.Backends()...)
}

func (f *interceptFlags) check() error {
	for _, b := range intercept.Backends() {
		if f.backend == b {
			return nil
		}
	}
	return terminal.UsageError{Err: fmt.Errorf("--intercept-with %q is none of %s", f.backend, strings.Join(intercept.Backends(), ", "))}
}

// addTo adds the flags of a sidecar that sets the rules itself.
func (f *interceptFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.resolvConf, "resolv-conf", "", "`file` with the servers that the DNS proxy asks for what is not of the mesh (default /etc/resolv.conf)")
	cmd.Flags().BoolVar(&f.on, "intercept", false,
		"have this network namespace's connections go through the sidecar while it runs; Envoy runs as --proxy-uid then")
	f.add(cmd)
}

// into makes them part of a sidecar's configuration. Envoy gets a user of its own where the
// agent sets the rules, or where one is asked for.
func (f *interceptFlags) into(cmd *cobra.Command, c *agent.Config) error {
	if err := f.check(); err != nil {
		return err
	}
	c.Intercept = agent.Intercept{Rules: f.on, Settings: f.settings, Backend: intercept.Backend(f.backend), ResolvConf: f.resolvConf}
	if !f.on && !cmd.Flags().Changed("proxy-uid") {
		return nil
	}
	uid, err := single("proxy-uid", f.settings.ProxyUID)
	if err != nil {
		return err
	}
	gid, err := single("proxy-gid", f.settings.ProxyGID)
	c.Intercept.User = &envoy.User{UID: uid, GID: gid}
	return err
}

// single is the one id that Envoy can run as.
func single(flag, text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		return 0, terminal.UsageError{Err: fmt.Errorf("--%s %q: Envoy runs as one user and group above 0, for example %d", flag, text, intercept.ProxyID)}
	}
	return uint32(n), nil
}

// newAgentInterceptCommand is `moonsail agent intercept`.
func newAgentInterceptCommand() *cobra.Command {
	f := &interceptFlags{}
	var undo, dry bool
	var ipv6 string
	cmd := &cobra.Command{
		Use:   "intercept",
		Short: "Have connections of this network namespace go through a sidecar",
		Long: `Sets the rules that lead the connections of this network namespace through a sidecar, in
place of any that it has set before, and ends: what an init container does. "moonsail agent
--intercept" does the same for as long as a sidecar runs.

Inbound connections go to Envoy's port 15006, outbound ones to 15001, unless flags say
otherwise: as the mesh's proxyInboundListenPort and proxyListenPort do. Left alone are:
connections of Envoy's user and group, those to loopback addresses, the sidecar's own ports
(15020, 15021, 15090, 15008), and what the flags exclude. It takes CAP_NET_ADMIN.

The rules are set by nftables, all at once, without any program but this; where the kernel
has no nftables, by iptables-restore and ip6tables-restore.`,
		Example: `  moonsail agent intercept --exclude-inbound-ports 9091 --exclude-outbound-ip-ranges 10.0.0.0/8
  moonsail agent intercept --interception-mode TPROXY --dry-run
  moonsail agent intercept --undo`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if undo {
				return intercept.Undo(cmd.Context())
			}
			c, err := f.config(ipv6)
			if err != nil {
				return err
			}
			if dry {
				return writeRules(cmd.OutOrStdout(), c, intercept.Backend(f.backend))
			}
			with, err := intercept.Apply(cmd.Context(), c, intercept.Backend(f.backend))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "connections go through the sidecar now (%s, by %s, IPv6: %t)\n", c.Mode, with, c.IPv6)
			return nil
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "take away all rules that were set")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the rules, and set none")
	cmd.Flags().StringVar(&ipv6, "ipv6", "auto", "intercept IPv6 too (true, false, or auto: where there is an address)")
	f.add(cmd)
	terminal.EnvFlags(cmd)
	return cmd
}

func (f *interceptFlags) config(ipv6 string) (*intercept.Config, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	c, err := f.settings.Parse()
	if err != nil {
		return nil, terminal.UsageError{Err: err}
	}
	switch ipv6 {
	case "auto":
		c.IPv6 = intercept.HasIPv6()
	case "true", "false":
		c.IPv6 = ipv6 == "true"
	default:
		return nil, terminal.UsageError{Err: fmt.Errorf("--ipv6 %q is none of true, false, auto", ipv6)}
	}
	return c, nil
}

// writeRules prints what would be set.
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
