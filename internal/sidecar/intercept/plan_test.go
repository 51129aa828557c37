package intercept

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the results to testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cases are settings, by the name of their golden file.
var cases = map[string]func(*Settings){
	"default": func(*Settings) {},
	"none":    func(s *Settings) { s.Mode = ModeNone },
	"tproxy": func(s *Settings) {
		s.Mode, s.ExcludeInterfaces, s.DropInvalid = ModeTProxy, "net1", "true"
	},
	"ports": func(s *Settings) {
		s.IncludeInboundPorts, s.ExcludeInboundPorts = "8080, 9090", "9091"
		s.IncludeOutboundPorts, s.ExcludeOutboundPorts = "3306", "22,25"
		s.IncludeOutboundIPRanges, s.ExcludeOutboundIPRanges = "10.0.0.0/8,fd00::/8", "10.1.2.3,fd00::1"
	},
	"no-inbound":      func(s *Settings) { s.IncludeInboundPorts = "" },
	"tproxy-ports":    func(s *Settings) { s.Mode, s.IncludeInboundPorts = ModeTProxy, "80,443" },
	"kubevirt":        func(s *Settings) { s.KubevirtInterfaces, s.ExcludeInterfaces = "k6t-eth0", "net1,net2" },
	"kubevirt-ranges": func(s *Settings) { s.KubevirtInterfaces, s.IncludeOutboundIPRanges = "k6t-eth0", "10.0.0.0/8" },
	"loopback":        func(s *Settings) { s.IncludeOutboundIPRanges = "127.0.0.0/8,10.0.0.0/8" },
	"dns":             func(s *Settings) { s.CaptureDNS = "true" },
	"tproxy-dns":      func(s *Settings) { s.Mode, s.CaptureDNS = ModeTProxy, "true" },
	"groups":          func(s *Settings) { s.ProxyUID, s.ProxyGID = "", "1337,2000" },
	"own-ports":       func(s *Settings) { s.OutboundPort, s.InboundPort = "16001", "16006" },
}

func TestPlan(t *testing.T) {
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			s := Default()
			change(&s)
			c, err := s.Parse()
			require.NoError(t, err)
			c.IPv6 = true
			golden(t, name, text(Plan(c)))
		})
	}
}

// TestWithoutIPv6 checks that no rule concerns IPv6.
func TestWithoutIPv6(t *testing.T) {
	c, err := func() (*Config, error) { s := Default(); return s.Parse() }()
	require.NoError(t, err)
	s := Plan(c)
	golden(t, "ipv4", text(s))
	require.NotContains(t, s.NFT(), "ip6")
	for _, chain := range s.Chains {
		if chain.Hook != "" {
			require.Equal(t, Rule{Family: IP6, Do: returns}, chain.Rules[0], chain.Name)
		}
	}
}

// TestServersOfResolvConf reads servers of several forms.
func TestServersOfResolvConf(t *testing.T) {
	for _, tt := range []struct {
		name, conf string
		want       []string
		problem    string
	}{
		{"of both families", "nameserver 10.0.0.10\nnameserver fd00::10\nnameserver 10.0.0.10\nsearch a.b\n", []string{"10.0.0.10", "fd00::10"}, ""},
		{"with a zone", "nameserver fe80::1%eth0\n", []string{"fe80::1"}, ""},
		{"none", "search a.b\n", []string{"127.0.0.1", "::1"}, ""},
		{"no address", "nameserver dns.example\n", nil, "no address of a DNS server: correct the file, or set --resolv-conf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "resolv.conf")
			require.NoError(t, os.WriteFile(file, []byte(tt.conf), 0o600))
			c := &Config{CaptureDNS: true}
			if err := c.CaptureServersOf(file); tt.problem != "" {
				require.ErrorContains(t, err, tt.problem)
			} else {
				require.NoError(t, err)
			}
			var got []string
			for _, a := range c.DNSServers {
				got = append(got, a.String())
			}
			require.Equal(t, tt.want, got)
		})
	}
	require.NoError(t, (&Config{}).CaptureServersOf("absent"), "without capture the file is not needed")
}

func text(s *Ruleset) string {
	return "### nft\n" + s.NFT() + "### iptables-restore\n" + s.IPTables(IP4, "") + "### ip6tables-restore\n" + s.IPTables(IP6, "")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644)) //nolint:gosec // test data
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// TestIPTablesText checks that existing rules are not added again, and that others of ours are removed in an order that
// the kernel accepts.
func TestIPTablesText(t *testing.T) {
	s := &Ruleset{Chains: []Chain{{Table: NAT, Name: "nat_output", Hook: Output, Rules: []Rule{{Do: returns}}}}}
	first := s.IPTables(IP4, "")
	require.Equal(t, "*nat\n:MOONSAIL_NAT_OUTPUT - [0:0]\n-A OUTPUT -j MOONSAIL_NAT_OUTPUT\n-A MOONSAIL_NAT_OUTPUT -j RETURN\nCOMMIT\n", first)
	saved := "*nat\n:OUTPUT ACCEPT [0:0]\n:MOONSAIL_NAT_OUTPUT - [0:0]\n-A OUTPUT -j MOONSAIL_NAT_OUTPUT\n-A MOONSAIL_NAT_OUTPUT -j RETURN\nCOMMIT\n"
	require.Equal(t, "*nat\n:MOONSAIL_NAT_OUTPUT - [0:0]\n-A MOONSAIL_NAT_OUTPUT -j RETURN\nCOMMIT\n", s.IPTables(IP4, saved))
	require.Equal(t, "*nat\n-D OUTPUT -j MOONSAIL_NAT_OUTPUT\n-F MOONSAIL_NAT_OUTPUT\n-X MOONSAIL_NAT_OUTPUT\nCOMMIT\n", (&Ruleset{}).IPTables(IP4, saved))
	require.Empty(t, (&Ruleset{}).IPTables(IP4, "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j RETURN\nCOMMIT\n"))
}

// TestChainNamesAreShort checks the limit of iptables, 28 characters.
func TestChainNamesAreShort(t *testing.T) {
	for _, change := range cases {
		s := Default()
		change(&s)
		c, err := s.Parse()
		require.NoError(t, err)
		for _, chain := range Plan(c).Chains {
			require.LessOrEqual(t, len(iptablesChain(chain.Name)), 28)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		want   []string
	}{
		{"mode", func(s *Settings) { s.Mode = "SOME" }, []string{"--interception-mode", "sidecar.istio.io/interceptionMode", `"SOME"`}},
		{"port", func(s *Settings) { s.ExcludeInboundPorts = "80,x" }, []string{"--exclude-inbound-ports", "traffic.sidecar.istio.io/excludeInboundPorts", `invalid port "x"`}},
		{"port 0", func(s *Settings) { s.IncludeInboundPorts = "0" }, []string{"includeInboundPorts", `invalid port "0"`}},
		{"large port", func(s *Settings) { s.ExcludeOutboundPorts = "70000" }, []string{"excludeOutboundPorts", `"70000"`}},
		{"all and more", func(s *Settings) { s.IncludeInboundPorts = "*,80" }, []string{`invalid port "*"`}},
		{"range", func(s *Settings) { s.IncludeOutboundIPRanges = "10.0.0.0/33" }, []string{"includeOutboundIPRanges", `invalid address range "10.0.0.0/33"`}},
		{"all is not excluded", func(s *Settings) { s.ExcludeOutboundIPRanges = "*" }, []string{"excludeOutboundIPRanges", `"*"`}},
		{"interface", func(s *Settings) { s.ExcludeInterfaces = "a-name-that-is-long" }, []string{"excludeInterfaces", "invalid network interface name"}},
		{"injection", func(s *Settings) { s.KubevirtInterfaces = "a\"; drop" }, []string{"invalid network interface name"}},
		{"root's connections", func(s *Settings) { s.ProxyUID = "0" }, []string{"--proxy-uid", "above 0"}},
		{"no user", func(s *Settings) { s.ProxyUID, s.ProxyGID = "", "" }, []string{"--proxy-uid", "redirected to it again"}},
		{"one port", func(s *Settings) { s.OutboundPort = "1,2" }, []string{"--envoy-port", `invalid value "1,2": use one port`}},
		{"no port", func(s *Settings) { s.InboundPort = "" }, []string{"--inbound-capture-port", "use one port"}},
		{"ports that are one", func(s *Settings) { s.InboundPort = s.OutboundPort }, []string{"--inbound-capture-port", "15001 is also --envoy-port"}},
		{"boolean", func(s *Settings) { s.CaptureDNS = "yes" }, []string{"--capture-dns", `invalid value "yes": use true or false`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Default()
			tt.change(&s)
			_, err := s.Parse()
			for _, w := range tt.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

// TestBooleans checks that the forms of booleans are those that Istio accepts.
func TestBooleans(t *testing.T) {
	for text, want := range map[string]bool{"": false, "true": true, "True": true, "1": true, "t": true, "false": false, "FALSE": false, "0": false} {
		s := Default()
		s.CaptureDNS, s.DropInvalid = text, text
		c, err := s.Parse()
		require.NoError(t, err, text)
		require.Equal(t, want, c.CaptureDNS, text)
		require.Equal(t, want, c.DropInvalid, text)
	}
}

func TestAnnotations(t *testing.T) {
	s := Default().Annotated(map[string]string{
		"traffic.sidecar.istio.io/includeInboundPorts": "", // set: no port
		"traffic.sidecar.istio.io/excludeInterfaces":   "net1",
		"traffic.sidecar.istio.io/kubevirtInterfaces":  "old",
		"istio.io/reroute-virtual-interfaces":          "new",
		"sidecar.istio.io/interceptionMode":            "TPROXY",
	})
	want := Default()
	want.IncludeInboundPorts, want.ExcludeInterfaces, want.KubevirtInterfaces, want.Mode = "", "net1", "new", ModeTProxy
	require.Equal(t, want, s)
}

// FuzzSettings checks that accepted settings make well-formed rules.
func FuzzSettings(f *testing.F) {
	f.Add("*", "80", "10.0.0.0/8", "eth0")
	f.Add("80,443", "", "fd00::/8,::1", "")
	f.Fuzz(func(t *testing.T, ports, excluded, ranges, interfaces string) {
		s := Default()
		s.IncludeInboundPorts, s.ExcludeOutboundPorts, s.IncludeOutboundIPRanges, s.KubevirtInterfaces = ports, excluded, ranges, interfaces
		c, err := s.Parse()
		if err != nil {
			return
		}
		c.IPv6 = true
		plan := Plan(c)
		require.Equal(t, strings.Count(plan.NFT(), "{"), strings.Count(plan.NFT(), "}"))
		require.NotContains(t, plan.IPTables(IP4, ""), "invalid")
	})
}
