package intercept

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// netfilter is a fake kernel that keeps rules, and fails on request.
type netfilter struct {
	nft, routes bool                // whether such rules are set
	tables      map[string][]string // lines as iptables-save writes them, by command and table
	fails       map[string]error    // errors by command: nft (to set), nft-delete, routes, and those of iptables
	meanwhile   func()              // called when a command fails
}

func newNetfilter() *netfilter {
	return &netfilter{tables: map[string][]string{}, fails: map[string]error{}, meanwhile: func() {}}
}

func (n *netfilter) setters() setters {
	return setters{
		nft: func(s *Ruleset) error {
			if len(s.Chains) == 0 {
				return n.set("nft-delete", &n.nft, false)
			}
			return n.set("nft", &n.nft, true)
		},
		nftThere: func() (bool, error) { return n.nft, nil },
		tables:   runner(n.run).restore, tablesThere: runner(n.run).there,
		routes: func(s *Ruleset) error {
			if len(s.Chains) == 0 {
				return n.set("routes-delete", &n.routes, false)
			}
			n.routes = true // a part of them is set before the failure
			return n.set("routes", &n.routes, true)
		},
	}
}

func (n *netfilter) set(command string, what *bool, to bool) error {
	if err := n.fails[command]; err != nil {
		n.meanwhile()
		return err
	}
	*what = to
	return nil
}

// run stands for iptables-save, iptables-restore and their commands for IPv6.
func (n *netfilter) run(ctx context.Context, in, name string, _ ...string) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err := n.fails[name]; err != nil {
		n.meanwhile()
		return "", err
	}
	command, what, _ := strings.Cut(name, "-")
	if what == "save" {
		return n.saved(command), nil
	}
	table := ""
	for line := range strings.Lines(in) {
		line = strings.TrimSuffix(line, "\n")
		if t, ok := strings.CutPrefix(line, "*"); ok {
			table = command + " " + t
			continue
		}
		n.tables[table] = restored(n.tables[table], line)
	}
	return "", nil
}

func (n *netfilter) saved(command string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.tables)) {
		if t, ok := strings.CutPrefix(name, command+" "); ok {
			b.WriteString(strings.Join(slices.Concat([]string{"*" + t}, n.tables[name], []string{"COMMIT\n"}), "\n"))
		}
	}
	return b.String()
}

// restored returns the lines of a table after iptables-restore --noflush reads one line.
func restored(lines []string, line string) []string {
	what, rest, _ := strings.Cut(line, " ")
	empty := func(chain string) []string {
		return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "-A "+chain+" ") })
	}
	switch {
	case strings.HasPrefix(what, ":"):
		if slices.Contains(lines, line) {
			return empty(what[1:])
		}
		return slices.Insert(lines, 0, line)
	case what == "-A":
		return append(lines, line)
	case what == "-D":
		if i := slices.Index(lines, "-A "+rest); i >= 0 {
			return slices.Delete(lines, i, i+1)
		}
	case what == "-F":
		return empty(rest)
	case what == "-X":
		return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, ":"+rest+" ") })
	}
	return lines
}

// inForce lists the backends with rules of ours, and the routes that belong to them.
func (n *netfilter) inForce() []string {
	out := []string{}
	for _, c := range commands {
		if strings.Contains(n.saved(c.name), chainPrefix) {
			out = append(out, c.name)
		}
	}
	if n.nft {
		out = append(out, "nftables")
	}
	if n.routes {
		out = append(out, "routes")
	}
	return out
}

func planned(t *testing.T, ipv6 bool) *Ruleset {
	t.Helper()
	s := Default()
	c, err := s.Parse()
	require.NoError(t, err)
	c.IPv6 = ipv6
	return Plan(c)
}

// TestAllRulesOrNone checks that no rules are left if the kernel refuses a part of them, not even older ones: without a
// sidecar, nothing would accept the redirected connections.
func TestAllRulesOrNone(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		by    Backend
		fails []string
		nft   bool   // nftables has rules of an earlier run
		want  string // in the error
		left  []string
	}{
		"IPv6 after IPv4":                {IPTables, []string{"ip6tables-restore"}, false, "refused", nil},
		"IPv6 cannot be read":            {IPTables, []string{"ip6tables-save"}, false, "refused", nil},
		"Auto, IPv6 after IPv4":          {Auto, []string{"nft", "ip6tables-restore"}, false, "refused", nil},
		"routes":                         {NFTables, []string{"routes"}, false, "refused", nil},
		"nftables, after an earlier run": {NFTables, []string{"nft"}, true, "refused", nil},
		"nftables' rules stay":           {IPTables, []string{"nft-delete"}, true, "some rules may be left", []string{"nftables"}},
		"Auto, nftables' rules stay":     {Auto, []string{"nft", "nft-delete"}, true, "some rules may be left", []string{"nftables"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newNetfilter()
			k.nft = tc.nft
			for _, f := range tc.fails {
				k.fails[f] = refused
			}
			ctx, cancel := context.WithCancel(t.Context())
			k.meanwhile = cancel // the process gets a signal to end
			_, err := k.setters().apply(ctx, planned(t, true), tc.by)
			require.ErrorIs(t, err, refused)
			require.ErrorContains(t, err, tc.want)
			require.ElementsMatch(t, tc.left, k.inForce())
		})
	}
}

// TestForbiddenOnce checks that a process without the right to set rules gets one error, and none for the removal.
func TestForbiddenOnce(t *testing.T) {
	k := newNetfilter()
	k.fails = map[string]error{"nft": syscall.EPERM, "routes": syscall.EPERM, "routes-delete": syscall.EPERM}
	_, err := k.setters().apply(t.Context(), planned(t, true), Auto)
	require.Equal(t, syscall.EPERM, err)
}

// TestOneWay checks that rules replace those of another backend or another family.
func TestOneWay(t *testing.T) {
	k := newNetfilter()
	others := []string{":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 1 -j RETURN"}
	k.tables["iptables nat"] = slices.Clone(others)
	set := func(b Backend, ipv6 bool, want ...string) {
		t.Helper()
		used, err := k.setters().apply(t.Context(), planned(t, ipv6), b)
		require.NoError(t, err)
		require.Equal(t, append(want, "routes"), k.inForce())
		require.Equal(t, used == NFTables, k.nft)
	}
	set(NFTables, true, "nftables")
	set(IPTables, true, "iptables", "ip6tables")
	set(IPTables, false, "iptables")
	set(NFTables, true, "nftables")
	set(IPTables, true, "iptables", "ip6tables")
	set(Auto, true, "nftables")
	k.fails["nft"] = syscall.EOPNOTSUPP
	set(Auto, true, "iptables", "ip6tables")
	require.NoError(t, k.setters().undo(t.Context()))
	require.Empty(t, k.inForce())
	require.Equal(t, others, k.tables["iptables nat"])
}
