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

// netfilter is a kernel that keeps what it is told, and refuses what it is to refuse.
type netfilter struct {
	nft, routes bool                // they are set
	tables      map[string][]string // lines as iptables-save writes them, by command and table
	fails       map[string]error    // by command: nft (to set), nft-delete, routes, and iptables'
	meanwhile   func()              // is called when a command fails
}

func newNetfilter() *netfilter {
	return &netfilter{tables: map[string][]string{}, fails: map[string]error{}, meanwhile: func() {}}
}

func (n *netfilter) setters() setters {
	return setters{
		nft: func(s *Ruleset) error {
			if len(s.Chains) == 0 {
				return n.say("nft-delete", &n.nft, false)
			}
			return n.say("nft", &n.nft, true)
		},
		nftThere: func() (bool, error) { return n.nft, nil },
		tables:   runner(n.run).restore, tablesThere: runner(n.run).there,
		routes: func(s *Ruleset) error {
			if len(s.Chains) == 0 {
				return n.say("routes-delete", &n.routes, false)
			}
			n.routes = true // a part of them
			return n.say("routes", &n.routes, true)
		},
	}
}

func (n *netfilter) say(command string, what *bool, to bool) error {
	if err := n.fails[command]; err != nil {
		n.meanwhile()
		return err
	}
	*what = to
	return nil
}

// run is iptables-save and iptables-restore, and those of IPv6.
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

// restored is a table's lines after one of iptables-restore --noflush.
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

// has are the ways by which rules of ours are in force, and what goes with them.
func (n *netfilter) has() []string {
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

// TestAllRulesOrNone: where a part of the rules is refused the others go, too, and so do those of
// before: nobody may be there to take the connections.
func TestAllRulesOrNone(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		by    Backend
		fails []string
		nft   bool // rules of nftables are there from before
		says  string
		left  []string
	}{
		"IPv6 after IPv4":                 {IPTables, []string{"ip6tables-restore"}, false, "refused", nil},
		"IPv6 cannot be read":             {IPTables, []string{"ip6tables-save"}, false, "refused", nil},
		"Auto, IPv6 after IPv4":           {Auto, []string{"nft", "ip6tables-restore"}, false, "refused", nil},
		"routes":                          {NFTables, []string{"routes"}, false, "refused", nil},
		"nftables, with those of before":  {NFTables, []string{"nft"}, true, "refused", nil},
		"those of nftables do not go":     {IPTables, []string{"nft-delete"}, true, "some rules may be left", []string{"nftables"}},
		"Auto, those of before do not go": {Auto, []string{"nft", "nft-delete"}, true, "some rules may be left", []string{"nftables"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newNetfilter()
			k.nft = tc.nft
			for _, f := range tc.fails {
				k.fails[f] = refused
			}
			ctx, cancel := context.WithCancel(t.Context())
			k.meanwhile = cancel // the process is told to end
			_, err := k.setters().apply(ctx, planned(t, true), tc.by)
			require.ErrorIs(t, err, refused)
			require.ErrorContains(t, err, tc.says)
			require.ElementsMatch(t, tc.left, k.has())
		})
	}
}

// TestForbiddenOnce: who may not set rules may take none away, and is told so once.
func TestForbiddenOnce(t *testing.T) {
	k := newNetfilter()
	k.fails = map[string]error{"nft": syscall.EPERM, "routes": syscall.EPERM, "routes-delete": syscall.EPERM}
	_, err := k.setters().apply(t.Context(), planned(t, true), Auto)
	require.Equal(t, syscall.EPERM, err)
}

// TestOneWay: rules replace those that were set another way, or for another family.
func TestOneWay(t *testing.T) {
	k := newNetfilter()
	others := []string{":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -m tcp --dport 1 -j RETURN"}
	k.tables["iptables nat"] = slices.Clone(others)
	set := func(b Backend, ipv6 bool, want ...string) {
		t.Helper()
		used, err := k.setters().apply(t.Context(), planned(t, ipv6), b)
		require.NoError(t, err)
		require.Equal(t, append(want, "routes"), k.has())
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
	require.Empty(t, k.has())
	require.Equal(t, others, k.tables["iptables nat"])
}
