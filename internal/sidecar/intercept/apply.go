package intercept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Backend is the program or interface that sets the rules.
type Backend string

// The backends.
const (
	Auto     Backend = "auto" // nftables, or iptables if the kernel refuses the rules
	NFTables Backend = "nftables"
	IPTables Backend = "iptables"
)

// Backends returns the names of all backends.
func Backends() []string { return []string{string(Auto), string(NFTables), string(IPTables)} }

// undoWithin bounds the removal of incomplete rules.
const undoWithin = 10 * time.Second

// Apply replaces the rules in the network namespace of this process, also those of the other backend, and returns the
// backend that it used. After an error no rules are left.
func Apply(ctx context.Context, c *Config, b Backend) (Backend, error) {
	used, err := ofKernel.apply(ctx, Plan(c), b)
	return used, explain(err)
}

// InForce reports whether the network namespace of this process has rules that Apply set, with either backend.
func InForce(ctx context.Context) (bool, error) {
	there, err := ofKernel.nftThere()
	if err != nil && !unsupported(err) {
		return false, fmt.Errorf("cannot read the rules of interception: %w", err)
	}
	return there || ofKernel.tablesThere(ctx), nil
}

// Undo removes everything that Apply may have set, with either backend.
func Undo(ctx context.Context) error { return explain(ofKernel.undo(ctx)) }

// unsupported reports whether the kernel has no nftables.
func unsupported(err error) bool {
	for _, e := range []syscall.Errno{syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP, syscall.EAFNOSUPPORT, syscall.EINVAL, syscall.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// explain adds advice to an error.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case forbidden(err):
		return fmt.Errorf("cannot set the rules of interception: %w: the process needs CAP_NET_ADMIN in its network namespace "+
			"(run it as root, or give the container the capability NET_ADMIN)", err)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("cannot set the rules of interception: the kernel refuses nftables, and iptables is not installed: %w: "+
			"load the kernel's modules nf_tables, nft_redir and nft_tproxy, or install iptables", err)
	}
	return fmt.Errorf("cannot set the rules of interception: %w", err)
}

// forbidden reports whether the process lacks permission, with either backend.
func forbidden(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "Permission denied")
}

// setRoutes adds the routes and addresses that rules need, or removes them.
func setRoutes(s *Ruleset) error {
	if err := setRouting(IP4, s.Routing); err != nil {
		return err
	}
	if !s.IPv6 {
		return nil
	}
	if err := setSource(len(s.Chains) > 0); err != nil {
		return err
	}
	return setRouting(IP6, s.Routing)
}

// runner runs a command with an input, and returns its output.
type runner func(ctx context.Context, in, name string, args ...string) (string, error)

// commands of the two families.
var commands = [2]struct {
	family Family
	name   string
}{{IP4, "iptables"}, {IP6, "ip6tables"}}

// restore replaces the chains with iptables and ip6tables. If there is no IPv6, ip6tables is not needed. Each table is
// a transaction of its own: after an error some may be set.
func (r runner) restore(ctx context.Context, s *Ruleset) error {
	var failed []error
	for _, c := range commands {
		rules := s
		if c.family == IP6 && !s.IPv6 {
			rules = &Ruleset{}
		}
		err := r.restoreFamily(ctx, rules, c.family, c.name)
		if err != nil && len(s.Chains) > 0 {
			return err
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (r runner) restoreFamily(ctx context.Context, s *Ruleset, f Family, name string) error {
	saved, err := r(ctx, "", name+"-save")
	if err != nil && len(s.Chains) == 0 && (f == IP6 || errors.Is(err, exec.ErrNotFound)) {
		return nil // nothing to remove
	}
	if err != nil {
		return err
	}
	text := s.IPTables(f, saved)
	if text == "" {
		return nil
	}
	_, err = r(ctx, text, name+"-restore", "--noflush", "--wait", "5")
	return err
}

// there reports whether a family has chains of Moonsail. A family that cannot be read has none that this machine could
// have set.
func (r runner) there(ctx context.Context) bool {
	for _, c := range commands {
		saved, err := r(ctx, "", c.name+"-save")
		if err == nil && len(ownChains(saved)) > 0 {
			return true
		}
	}
	return false
}

// run returns a command's output. Its stderr is part of the error.
func run(ctx context.Context, in, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// NeedsIPv6 reports whether IPv6 is intercepted for a workload: if one of its addresses is of IPv6, as Envoy's listeners. The host may have
// others, at interfaces of other networks. If no address is known, those of this network namespace count.
func NeedsIPv6(workload []string) bool {
	if len(workload) == 0 {
		return hasIPv6()
	}
	return slices.ContainsFunc(workload, func(text string) bool {
		ip, err := netip.ParseAddr(text)
		return err == nil && ip.Unmap().Is6()
	})
}

// hasIPv6 reports whether this network namespace has IPv6 addresses other than loopback and link-local ones.
func hasIPv6() bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsGlobalUnicast() {
			return true
		}
	}
	return false
}
