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
)

// Backend is what rules are set with.
type Backend string

// The backends.
const (
	Auto     Backend = "auto" // nftables, or iptables where the kernel has no nftables
	NFTables Backend = "nftables"
	IPTables Backend = "iptables"
)

// Backends are their names.
func Backends() []string { return []string{string(Auto), string(NFTables), string(IPTables)} }

// Apply sets the rules in the network namespace of this process, in place of any that were set
// before, and says with what. Where it fails, the rules are as they were.
func Apply(ctx context.Context, c *Config, b Backend) (Backend, error) {
	rules := Plan(c)
	if b == Auto {
		b = choose()
	}
	if err := setRoutes(rules); err != nil {
		return b, explain(err)
	}
	var err error
	switch b {
	case IPTables:
		err = restore(ctx, rules)
	default:
		err = applyNFT(rules)
	}
	if err != nil {
		err = errors.Join(err, setRoutes(&Ruleset{IPv6: rules.IPv6}))
		return b, explain(fmt.Errorf("%s: %w", b, err))
	}
	return b, nil
}

// Undo takes away everything that Apply may have set, in whatever way. Where there is nothing
// it does nothing.
func Undo(ctx context.Context) error {
	var failed []error
	there, err := nftThere()
	if there {
		err = applyNFT(&Ruleset{})
	}
	if err != nil && !unsupported(err) {
		failed = append(failed, fmt.Errorf("%s: %w", NFTables, err))
	}
	if _, err := exec.LookPath("iptables-save"); err == nil {
		if err := restore(ctx, &Ruleset{IPv6: true}); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", IPTables, err))
		}
	}
	if err := setRoutes(&Ruleset{IPv6: true}); err != nil {
		failed = append(failed, err)
	}
	return explain(errors.Join(failed...))
}

// choose is nftables, unless the kernel says that it does not know it.
func choose() Backend {
	if _, err := nftThere(); err != nil && unsupported(err) {
		return IPTables
	}
	return NFTables
}

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
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), strings.Contains(err.Error(), "Permission denied"):
		return fmt.Errorf("rules of interception cannot be set: %w: the process needs CAP_NET_ADMIN in its network namespace "+
			"(run it as root, or give the container the capability NET_ADMIN)", err)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("rules of interception cannot be set: the kernel offers no nftables, and there is no iptables: %w: "+
			"load the kernel's module nf_tables, or install iptables", err)
	}
	return fmt.Errorf("rules of interception cannot be set: %w", err)
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

// restore replaces our chains by iptables, and by ip6tables where there is IPv6.
func restore(ctx context.Context, s *Ruleset) error {
	families := []Family{IP4}
	if s.IPv6 {
		families = append(families, IP6)
	}
	for _, f := range families {
		name := "iptables"
		if f == IP6 {
			name = "ip6tables"
		}
		saved, err := run(ctx, "", name+"-save")
		if err != nil {
			if f == IP6 && len(s.Chains) == 0 {
				continue // there is nothing to take away
			}
			return err
		}
		text := s.IPTables(f, saved)
		if text == "" {
			continue
		}
		if _, err := run(ctx, text, name+"-restore", "--noflush", "--wait", "5"); err != nil {
			return err
		}
	}
	return nil
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
