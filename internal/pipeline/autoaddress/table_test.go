package autoaddress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func entryOf(ns, name string, created int64, hosts ...model.Host) *model.ServiceEntry {
	e := &model.ServiceEntry{Hosts: hosts}
	e.Key = model.Key{Kind: model.KindServiceEntry, Namespace: ns, Name: name}
	if created > 0 {
		e.Created = time.Unix(created, 0)
	}
	e.Template.Resolution = model.ResolutionDNS
	return e
}

// small ranges cause conflicts: 14 addresses of IPv4, 6 of IPv6.
var small = model.AutoAddresses{V4: netip.MustParsePrefix("240.0.0.0/28"), V6: netip.MustParsePrefix("2001:2::/125")}

func all(list ...*model.ServiceEntry) map[model.Key]map[model.Host][]netip.Addr {
	given, _ := Given(model.DefaultAutoAddresses(), slices.Values(list))
	return given
}

// TestAddresses pins an assignment: addresses are in the status of objects and in DNS caches. If a new version assigned
// them to other hosts, connections would go there.
func TestAddresses(t *testing.T) {
	e := entryOf("shop", "db", 1, "db.example.com")
	require.Equal(t, "map[db.example.com:[240.240.96.21 2001:2::3464:b930:628a:1311]]", fmt.Sprint(all(e)[e.Key]))
}

func TestHostsWithAddresses(t *testing.T) {
	of := func(change func(*model.ServiceEntry)) string {
		e := entryOf("shop", "db", 1, "a.example.com", "*.b.example.com")
		change(e)
		var hosts []string
		for h, list := range all(e)[e.Key] {
			require.Len(t, list, 2, "one of each family")
			require.True(t, model.DefaultAutoAddresses().V4.Contains(list[0]) && model.DefaultAutoAddresses().V6.Contains(list[1]), "%s", list)
			hosts = append(hosts, string(h))
		}
		slices.Sort(hosts)
		return strings.Join(hosts, " ")
	}
	resolution := func(r model.Resolution) func(*model.ServiceEntry) {
		return func(e *model.ServiceEntry) { e.Template.Resolution = r }
	}
	label := func(v string) func(*model.ServiceEntry) {
		return func(e *model.ServiceEntry) { e.Labels = map[string]string{model.LabelAutoAddress: v} }
	}
	require.Equal(t, "a.example.com", of(resolution(model.ResolutionDNS)), "a wildcard cannot be resolved")
	require.Equal(t, "a.example.com", of(resolution(model.ResolutionStatic)))
	require.Empty(t, of(resolution(model.ResolutionNone)))
	require.Equal(t, "*.b.example.com a.example.com", of(resolution(model.ResolutionDynamicDNS)), "with dynamic DNS the connection names the host")
	require.Empty(t, of(label("False")))
	require.Equal(t, "a.example.com", of(label("yes")))
	require.Empty(t, of(func(e *model.ServiceEntry) {
		e.Template.Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}))
}

// TestStatusTakesPrecedence checks that a host keeps the address in its status, of several hosts the oldest. Addresses in a
// spec are not assigned.
func TestStatusTakesPrecedence(t *testing.T) {
	a, b, c := entryOf("x", "a", 3, "a.com"), entryOf("x", "b", 2, "b.com"), entryOf("x", "c", 1, "c.com")
	shared := netip.MustParseAddr("240.240.1.1")
	hashed := all(c)[c.Key]["c.com"][0]
	a.Status, b.Status = []model.HostAddress{{Host: "a.com", Address: shared}}, []model.HostAddress{{Host: "b.com", Address: shared}}
	got := all(a, b, c)
	require.Equal(t, shared, got[b.Key]["b.com"][0], "of the older one")
	require.NotEqual(t, shared, got[a.Key]["a.com"][0])
	require.Equal(t, hashed, got[c.Key]["c.com"][0])

	a.Status[0].Address = hashed
	got = all(a, b, c)
	require.Equal(t, hashed, got[a.Key]["a.com"][0], "an address in a status precedes an older host")
	require.Equal(t, hashed.Next(), got[c.Key]["c.com"][0])

	d := entryOf("x", "d", 9, "d.com")
	d.Template.Addresses = []netip.Prefix{netip.PrefixFrom(shared, 32)}
	require.NotEqual(t, shared, all(a, b, c, d)[b.Key]["b.com"][0])

	outside := netip.MustParseAddr("10.1.2.3")
	c.Status = []model.HostAddress{{Host: "c.com", Address: outside}}
	require.Equal(t, outside, all(c)[c.Key]["c.com"][0], "of an earlier range")
}

// TestOtherHostsKeepTheirAddresses checks that of a thousand hosts none changes its address when another one is added,
// removed, or gets its status.
func TestOtherHostsKeepTheirAddresses(t *testing.T) {
	table := New(model.DefaultAutoAddresses())
	of := map[model.Key]netip.Addr{}
	seen := map[netip.Addr]bool{}
	for i := range 1000 {
		e := entryOf("x", fmt.Sprint(i), int64(1+i), model.Host(fmt.Sprintf("h%d.com", i)))
		table.Replace(e.Key, e)
		require.Equal(t, []model.Key{e.Key}, table.Touched())
		of[e.Key] = table.Of(e.Key)[e.Hosts[0]][0]
		require.False(t, seen[of[e.Key]])
		seen[of[e.Key]] = true
		told := *e
		told.Status = []model.HostAddress{{Host: e.Hosts[0], Address: of[e.Key]}}
		table.Replace(e.Key, &told)
		require.Empty(t, table.Touched(), "the status has the assigned address")
	}
	for k := range of {
		if k.Name != "7" {
			table.Replace(k, nil)
			require.Equal(t, []model.Key{k}, table.Touched())
		}
	}
}

// TestRandom checks that after any sequence of changes the addresses are those of a new table with the same entries, in
// ranges that are too small for all.
func TestRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		table, have := New(small), map[model.Key]*model.ServiceEntry{}
		held := map[model.Key]map[model.Host][]netip.Addr{} // updated by Touched
		for range 150 {
			e := randomEntry(r, have)
			have[e.Key] = e
			if r.IntN(4) == 0 {
				delete(have, e.Key)
			}
			table.Replace(e.Key, have[e.Key])
			for _, k := range table.Touched() {
				if held[k] = table.Of(k); held[k] == nil {
					delete(held, k)
				}
			}
			want, lacking := Given(small, func(yield func(*model.ServiceEntry) bool) {
				for _, e := range have {
					if !yield(e) {
						return
					}
				}
			})
			require.LessOrEqual(t, len(held), len(want))
			require.Equal(t, lacking, table.Lacking(), "seed %d", seed)
			for k, hosts := range want {
				require.Equal(t, hosts, held[k], "seed %d: %s", seed, k)
			}
			requireDistinct(t, want)
		}
	}
}

func requireDistinct(t *testing.T, all map[model.Key]map[model.Host][]netip.Addr) {
	t.Helper()
	seen := map[netip.Addr]model.Key{}
	for k, hosts := range all {
		for _, list := range hosts {
			for _, a := range list {
				require.Empty(t, seen[a], "%s", a)
				seen[a] = k
			}
		}
	}
}

// randomEntry has one of few names. Its status has its own address, that of another host, or a random one.
func randomEntry(r *rand.Rand, have map[model.Key]*model.ServiceEntry) *model.ServiceEntry {
	e := entryOf("x", fmt.Sprint(r.IntN(12)), int64(r.IntN(3)))
	for range 1 + r.IntN(3) {
		if h := model.Host(fmt.Sprintf("h%d.com", r.IntN(5))); !slices.Contains(e.Hosts, h) {
			e.Hosts = append(e.Hosts, h)
		}
	}
	if r.IntN(6) == 0 {
		e.Template.Addresses = []netip.Prefix{netip.PrefixFrom(randomAddress(r), 32)}
	}
	if old := have[e.Key]; old != nil && r.IntN(2) == 0 { // its status is written
		told := *old
		given, _ := Given(small, func(yield func(*model.ServiceEntry) bool) { yield(old) })
		for h, list := range given[old.Key] {
			for _, a := range list {
				told.Status = append(told.Status, model.HostAddress{Host: h, Address: a})
			}
		}
		return &told
	}
	for _, h := range e.Hosts {
		if r.IntN(3) == 0 {
			e.Status = append(e.Status, model.HostAddress{Host: h, Address: randomAddress(r)})
		}
	}
	return e
}

func randomAddress(r *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte{240, 0, 0, byte(r.IntN(17))})
}

func TestRangesWithoutRoom(t *testing.T) {
	e := entryOf("x", "a", 1, "a.com")
	for _, s := range []model.AutoAddresses{{}, {V4: netip.MustParsePrefix("10.0.0.0/31"), V6: netip.MustParsePrefix("fd00::/128")}} {
		given, lacking := Given(s, slices.Values([]*model.ServiceEntry{e}))
		require.Empty(t, given[e.Key])
		require.Empty(t, lacking, "the ranges have no addresses")
	}
}

func BenchmarkReplace(b *testing.B) {
	table := New(model.DefaultAutoAddresses())
	var list []*model.ServiceEntry
	for i := range 10_000 {
		e := entryOf("x", fmt.Sprint(i), 1, model.Host(fmt.Sprintf("h%d.com", i)))
		list = append(list, e)
		table.Replace(e.Key, e)
	}
	for n := 0; b.Loop(); n++ {
		e := list[n%len(list)]
		table.Replace(e.Key, nil)
		table.Replace(e.Key, e)
	}
}

// TestUsedUpRange checks that a host is listed as long as no address is left for it.
func TestUsedUpRange(t *testing.T) {
	small := model.AutoAddresses{V4: netip.MustParsePrefix("240.240.0.0/30"), V6: netip.MustParsePrefix("2001:2::/48")}
	table := New(small)
	for i, name := range []string{"a", "b", "c"} {
		e := entryOf("shop", name, int64(i), model.Host(name+".example.com"))
		table.Replace(e.Key, e)
		if i < 2 {
			require.Empty(t, table.Lacking())
		}
	}
	lacking := table.Lacking()
	require.Len(t, lacking, 1)
	require.Equal(t, "c", lacking[0].Entry.Name, "the youngest")
	require.Contains(t, lacking[0].String(), "all addresses of 240.240.0.0/30 are in use, so c.example.com has none")
	require.Contains(t, lacking[0].String(), "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX")
	_, again := Given(small, slices.Values([]*model.ServiceEntry{table.entries[lacking[0].Entry].object}))
	require.Empty(t, again, "on its own it has one")
	table.Replace(model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "a"}, nil)
	require.Empty(t, table.Lacking())
	require.Len(t, table.Of(lacking[0].Entry)["c.example.com"], 2)
}
