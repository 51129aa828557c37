//go:build linux

package intercept

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/moonsail/moonsail/test/netns"
)

func TestRedirect(t *testing.T) { overBackends(t, testRedirect) }

func testRedirect(t *testing.T, b Backend) {
	n := netns.New(t, true)
	own, other := n.Host(), n.Host()
	apply(t, own, b, func(s *Settings) {
		s.ExcludeInboundPorts, s.ExcludeOutboundPorts = "7000", "7001"
		s.ExcludeOutboundIPRanges = "10.91.0.200/30,fd91::200/120"
	})
	for _, l := range []struct {
		port int
		word string
	}{{DefaultOutboundPort, "outbound"}, {DefaultInboundPort, "inbound"}, {8080, "app"}, {7000, "excluded"}, {15021, "ready"}} {
		listen(t, own, fmt.Sprintf("[::]:%d", l.port), l.word, false)
	}
	for _, port := range []int{8080, 7001} {
		listen(t, other, fmt.Sprintf("[::]:%d", port), "other", false)
	}
	for _, tt := range []struct {
		name     string
		from     *netns.Host
		to, want string
	}{
		{"inbound", other, at(own.IP, 8080), "inbound for " + at(own.IP, 8080) + " from " + other.IP.String()},
		{"inbound, IPv6", other, at(own.IP6, 8080), "inbound for " + at(own.IP6, 8080) + " from " + other.IP6.String()},
		{"a port without a listener", other, at(own.IP, 8081), "inbound for " + at(own.IP, 8081) + " from " + other.IP.String()},
		{"an excluded port", other, at(own.IP, 7000), "excluded for " + at(own.IP, 7000) + " from " + other.IP.String()},
		{"readiness", other, at(own.IP, 15021), "ready for " + at(own.IP, 15021) + " from " + other.IP.String()},
		{"outbound", own, at(other.IP, 8080), "outbound for " + at(other.IP, 8080) + " from " + own.IP.String()},
		{"outbound, IPv6", own, at(other.IP6, 8080), "outbound for " + at(other.IP6, 8080) + " from " + own.IP6.String()},
		{"an address without a host", own, "203.0.113.9:80", "outbound for 203.0.113.9:80 from " + own.IP.String()},
		{"an excluded outbound port", own, at(other.IP, 7001), "other for " + at(other.IP, 7001) + " from " + own.IP.String()},
		{"itself by its address", own, at(own.IP, 8080), "app for " + at(own.IP, 8080) + " from " + own.IP.String()},
		{"itself by loopback", own, "127.0.0.1:8080", "app for 127.0.0.1:8080 from 127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, call(t, tt.from, tt.to)) })
	}
	t.Run("Envoy", func(t *testing.T) {
		require.Equal(t, "other for "+at(other.IP, 8080)+" from "+own.IP.String(), callAs(t, own, ProxyID, at(other.IP, 8080)))
		require.Equal(t, "inbound for "+at(own.IP, 8080)+" from "+own.IP.String(), callAs(t, own, ProxyID, at(own.IP, 8080)))
		require.Equal(t, "app for 127.0.0.1:8080 from 127.0.0.1", callAs(t, own, ProxyID, "127.0.0.1:8080"))
	})
	undo(t, own)
	require.Equal(t, "app for "+at(own.IP, 8080)+" from "+other.IP.String(), call(t, other, at(own.IP, 8080)))
	require.Equal(t, "other for "+at(other.IP, 8080)+" from "+own.IP.String(), call(t, own, at(other.IP, 8080)))
}

func TestTProxyKeepsAddresses(t *testing.T) { overBackends(t, testTProxy) }

// testTProxy uses other ports of Envoy, as MeshConfig can set them.
func testTProxy(t *testing.T, b Backend) {
	n := netns.New(t, true)
	own, other := n.Host(), n.Host()
	apply(t, own, b, func(s *Settings) { s.Mode, s.OutboundPort, s.InboundPort = ModeTProxy, "16001", "16006" })
	listen(t, own, "[::]:16006", "inbound", true)
	listen(t, own, "[::]:16001", "outbound", false)
	listen(t, own, "[::]:15021", "ready", false)
	require.Equal(t, "inbound for "+at(own.IP, 8080)+" from "+other.IP.String(), call(t, other, at(own.IP, 8080)))
	require.Equal(t, "inbound for "+at(own.IP6, 8080)+" from "+other.IP6.String(), call(t, other, at(own.IP6, 8080)))
	require.Equal(t, "ready for "+at(own.IP, 15021)+" from "+other.IP.String(), call(t, other, at(own.IP, 15021)))
	require.Equal(t, "outbound for "+at(other.IP, 8080)+" from "+own.IP.String(), call(t, own, at(other.IP, 8080)))
	for _, family := range []string{"-4", "-6"} {
		require.Equal(t, 1, strings.Count(onHost(t, own, "ip", family, "rule"), "fwmark 0x539 lookup 133"))
	}
	undo(t, own)
	for _, family := range []string{"-4", "-6"} {
		require.NotContains(t, onHost(t, own, "ip", family, "rule"), "fwmark")
	}
}

func TestTProxyWithoutEnvoy(t *testing.T) { overBackends(t, testTProxyWithoutEnvoy) }

// testTProxyWithoutEnvoy checks that a call does not reach the application directly if Envoy does not listen, or cannot
// accept connections to other addresses.
func testTProxyWithoutEnvoy(t *testing.T, b Backend) {
	n := netns.New(t, true)
	own, other := n.Host(), n.Host()
	listen(t, own, "[::]:8080", "app", false)
	for name, change := range map[string]func(*Settings){
		"all ports": func(s *Settings) { s.Mode = ModeTProxy },
		"a port":    func(s *Settings) { s.Mode, s.IncludeInboundPorts = ModeTProxy, "8080" },
	} {
		apply(t, own, b, change)
		for _, to := range []string{at(own.IP, 8080), at(own.IP6, 8080)} {
			require.Equal(t, "no answer", callUnanswered(t, other, to), "%s: %s", name, to)
		}
	}
	listen(t, own, "[::]:15006", "not transparent", false)
	require.Equal(t, "no answer", callUnanswered(t, other, at(own.IP, 8080)))
}

func TestDNSServersOfThisHost(t *testing.T) { overBackends(t, testDNSServersOfThisHost) }

// testDNSServersOfThisHost checks that a resolver at a loopback address gets the sidecar's questions, and only those.
func testDNSServersOfThisHost(t *testing.T, b Backend) {
	for _, mode := range []string{ModeRedirect, ModeTProxy} {
		t.Run(mode, func(t *testing.T) {
			n := netns.New(t, true)
			own, other := n.Host(), n.Host()
			resolv := filepath.Join(t.TempDir(), "resolv.conf")
			require.NoError(t, os.WriteFile(resolv, []byte("nameserver 127.0.0.53\n"), 0o600))
			applyConfig(t, own, b, func(s *Settings) { s.Mode, s.CaptureDNS = mode, "true" }, func(c *Config) {
				require.NoError(t, c.CaptureServersOf(resolv))
			})
			for at, word := range map[string]string{"127.0.0.1:15001": "outbound", "127.0.0.53:53": "resolver", "127.0.0.1:15053": "DNS proxy"} {
				listen(t, own, at, word, false)
			}
			listen(t, own, "[::]:15006", "inbound", mode == ModeTProxy)
			listen(t, other, at(other.IP, 53), "other", false)
			require.Equal(t, "DNS proxy for 127.0.0.53:53 from 127.0.0.1", call(t, own, "127.0.0.53:53"))
			require.Equal(t, "resolver for 127.0.0.53:53 from 127.0.0.1", callAs(t, own, ProxyID, "127.0.0.53:53"))
			require.Equal(t, "outbound for "+at(other.IP, 53)+" from "+own.IP.String(), call(t, own, at(other.IP, 53)))
		})
	}
}

// rules counts our rules in the kernel, by chain; nil: the table does not exist.
func rules(t *testing.T, h *netns.Host) map[string]int {
	t.Helper()
	var out map[string]int
	h.Do(t, func() {
		conn, err := nftables.New()
		require.NoError(t, err)
		chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
		require.NoError(t, err)
		for _, c := range chains {
			if c.Table.Name != tableName {
				continue
			}
			if out == nil {
				out = map[string]int{}
			}
			list, err := conn.GetRules(c.Table, c)
			require.NoError(t, err)
			out[c.Name] = len(list)
		}
	})
	return out
}

// TestKernelHasThePlan checks that the kernel has the planned rules of each setting, that they replace earlier ones, and
// that removal leaves none.
func TestKernelHasThePlan(t *testing.T) {
	h := netns.New(t, true).Host()
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			s := Default()
			change(&s)
			c, err := s.Parse()
			require.NoError(t, err)
			c.IPv6 = true
			want := map[string]int{}
			for _, chain := range Plan(c).Chains {
				want[chain.Name] = len(chain.Rules)
			}
			apply(t, h, NFTables, change)
			if len(want) == 0 {
				want = nil
			}
			require.Equal(t, want, rules(t, h))
			t.Run("text", func(t *testing.T) { sameAsText(t, h, Plan(c)) })
		})
	}
	undo(t, h)
	require.Nil(t, rules(t, h))
	undo(t, h) // again, without rules
}

// sameAsText compares the rules in the kernel with those that nft makes from the text.
func sameAsText(t *testing.T, h *netns.Host, plan *Ruleset) {
	t.Helper()
	if len(plan.Chains) == 0 {
		return
	}
	netns.RequireCommand(t, "nft", "nftables")
	before := onHost(t, h, "nft", "-s", "-n", "list", "table", "inet", tableName)
	file := filepath.Join(t.TempDir(), "rules.nft")
	require.NoError(t, os.WriteFile(file, []byte(plan.NFT()), 0o600))
	onHost(t, h, "nft", "-f", file)
	require.Equal(t, onHost(t, h, "nft", "-s", "-n", "list", "table", "inet", tableName), before)
}

// TestIPTablesIsReplaced checks that rules of earlier settings are removed, and foreign rules stay.
func TestIPTablesIsReplaced(t *testing.T) {
	for _, form := range []string{"legacy", "nft"} {
		t.Run(form, func(t *testing.T) { useIPTables(t, form); testReplaced(t) })
	}
}

func testReplaced(t *testing.T) {
	h := netns.New(t, true).Host()
	onHost(t, h, "iptables", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "1", "-j", "RETURN")
	there := func() bool { return strings.Contains(onHost(t, h, "iptables-save"), chainPrefix) }
	for _, name := range []string{"tproxy", "dns", "default", "none"} {
		apply(t, h, IPTables, cases[name])
		require.Equal(t, name != "none", there(), name)
	}
	apply(t, h, IPTables, cases["default"])
	apply(t, h, NFTables, cases["default"])
	require.False(t, there(), "rules of both would be in force")
	require.NotEmpty(t, rules(t, h))
	apply(t, h, IPTables, cases["tproxy"])
	require.True(t, there())
	require.Nil(t, rules(t, h))
	undo(t, h)
	for _, cmd := range []string{"iptables-save", "ip6tables-save"} {
		require.NotContains(t, onHost(t, h, cmd), chainPrefix)
	}
	require.Contains(t, onHost(t, h, "iptables-save", "-t", "nat"), "--dport 1 -j RETURN")
}

// TestWithoutRights checks that the error names the missing capability.
func TestWithoutRights(t *testing.T) {
	h := netns.New(t, false).Host()
	c, err := func() (*Config, error) { s := Default(); return s.Parse() }()
	require.NoError(t, err)
	h.Do(t, func() {
		_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 1337, 1337, 1337)
		if e != 0 {
			err = e
			return
		}
		_, err = Apply(context.Background(), c, Auto)
	})
	require.ErrorContains(t, err, "CAP_NET_ADMIN")
	require.ErrorIs(t, err, syscall.EPERM)
}
