package intercept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Backend is what rules are set with.
type Backend string

// The backends.
const (
	Auto     Backend = "auto" // nftables, or iptables where the kernel refuses the rules so
	NFTables Backend = "nftables"
	IPTables Backend = "iptables"
)

// Backends are their names.
func Backends() []string { return []string{string(Auto), string(NFTables), string(IPTables)} }

// undoWithin bounds how long it may take to take away rules that could not be set as a whole.
const undoWithin = 10 * time.Second

// Apply sets the rules in the network namespace of this process, in place of any that were set
// before, in whatever way, and says with what. Where it fails, none of ours are left.
func Apply(ctx context.Context, c *Config, b Backend) (Backend, error) {
	used, err := ofKernel.apply(ctx, Plan(c), b)
	return used, explain(err)
}

// Undo takes away everything that Apply may have set, in whatever way. Where there is nothing
// it does nothing.
func Undo(ctx context.Context) error { return explain(ofKernel.undo(ctx)) }

// unsupported: the kernel has no nftables.
func unsupported(err error) bool {
	for _, e := range []syscall.Errno{syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP, syscall.EAFNOSUPPORT, syscall.EINVAL, syscall.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// explain adds what to do.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case forbidden(err):
		return fmt.Errorf("rules of interception cannot be set: %w: the process needs CAP_NET_ADMIN in its network namespace "+
			"(run it as root, or give the container the capability NET_ADMIN)", err)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("interception rules cannot be set: the kernel refuses nftables, and iptables is not installed: %w: "+
			"load the kernel's modules nf_tables, nft_redir and nft_tproxy, or install iptables", err)
	}
	return fmt.Errorf("rules of interception cannot be set: %w", err)
}

// forbidden: the process may not, whatever it sets rules with.
func forbidden(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "Permission denied")
}

// setRoutes makes the routes and addresses that rules need, or takes them away.
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

// runner runs a command with a text, and gives its output.
type runner func(ctx context.Context, in, name string, args ...string) (string, error)

// commands of the families.
var commands = [2]struct {
	family Family
	name   string
}{{IP4, "iptables"}, {IP6, "ip6tables"}}

// restore replaces our chains by iptables, and by ip6tables: where there is no IPv6, by none.
// Each table is a transaction, and not the whole: where it fails some may be set.
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
		return nil // there is nothing to take away
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

// there tells whether a family has chains of ours. One that cannot be read has none that this
// machine could have set.
func (r runner) there(ctx context.Context) bool {
	for _, c := range commands {
		saved, err := r(ctx, "", c.name+"-save")
		if err == nil && len(ownChains(saved)) > 0 {
			return true
		}
	}
	return false
}

// run gives a command's output; what it says on stderr is the error.
func run(ctx context.Context, in, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// HasIPv6 tells whether this network namespace has addresses of IPv6 by which it is reached.
func HasIPv6() bool {
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
