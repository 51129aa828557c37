package routeshard

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// patternShard computes the shard as Envoy does. Go's syntax of these expressions is that of RE2.
func patternShard(patterns [3][]*regexp.Regexp, host string) (sum int) {
	for i, p := range patterns[kindOf(host)] {
		if !p.MatchString(host) {
			sum |= 1 << i
		}
	}
	if kindOf(host) != name {
		sum += 1 << MaxBits
	}
	return sum
}

func patternsOf(bits int) (out [3][]*regexp.Regexp) {
	for k := range out {
		for i := range bits {
			out[k] = append(out[k], regexp.MustCompile(strings.ReplaceAll(bitPattern(kind(k), i), `\\`, `\`)))
		}
	}
	return out
}

func TestPatternsAgreeWithShards(t *testing.T) {
	patterns := patternsOf(MaxBits)
	check := func(host string) {
		require.Equal(t, Of(host, MaxBits), patternShard(patterns, host), "%q", host)
	}
	for _, host := range []string{"", ".", ":", "a", "9", "[", "]", "[]", "[::1]", "[fd00::1f]:80", "10.96.0.1", "10.96.0.1:80",
		"3scale.shop", "3.", "reviews", "REVIEWS:80", "x_y-z.", "-", "*", "a]b", "a[b", "1[2", "0", "99:1", "a b", "é", "a.é"} {
		check(host)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20_000 {
		host := make([]byte, r.IntN(12))
		for i := range host {
			host[i] = "abcxyzABCXYZ0123456789-._:[]*"[r.IntN(29)]
		}
		check(string(host))
	}
}

func TestAliasesShareShard(t *testing.T) {
	want := Of("reviews", 6)
	for _, alias := range []string{"reviews.shop", "reviews.shop.svc", "Reviews.Shop.svc.cluster.local", "reviews:9080", "reviews.shop:80"} {
		require.Equal(t, want, Of(alias, 6), alias)
	}
	require.Equal(t, Of("10.96.3.7", 6), Of("10.96.3.7:80", 6))
	require.NotEqual(t, Of("10.96.3.7", 6), Of("10.96.3.8", 6))
}

// spread returns the size of the largest shard, relative to the mean.
func spread(hosts []string, bits int) float64 {
	count := make([]int, 1<<bits)
	for _, h := range hosts {
		count[Of(h, bits)%len(count)]++
	}
	return float64(slices.Max(count)) * float64(len(count)) / float64(len(hosts))
}

func TestShardsAreEven(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hosts []string
	}{
		{"numbered", many(5000, func(i int) string { return fmt.Sprintf("svc-%d.ns-%d", i, i%50) })},
		{"padded", many(5000, func(i int) string { return fmt.Sprintf("svc-%04d", i) })},
		{"IPv4", many(5000, func(i int) string { return fmt.Sprintf("10.96.%d.%d", i>>8, i&255) })},
		{"IPv6", many(5000, func(i int) string { return fmt.Sprintf("[fd00:10:96::%x]", i) })},
		{"words", words()},
		{"one suffix", suffixed("-service")},
	} {
		for _, bits := range []int{4, 5, 6} {
			t.Logf("%-10s %d shards: fullest %.2f of the mean", tc.name, 1<<bits, spread(tc.hosts, bits))
			require.Less(t, spread(tc.hosts, bits), 2.0, "%s, %d bits", tc.name, bits)
		}
		t.Logf("%-10s %d shards: a host shares its own with %.1f, mean %.1f", tc.name, 1<<MaxBits, shared(tc.hosts), float64(len(tc.hosts))/(1<<MaxBits))
		require.Less(t, shared(tc.hosts), 2*float64(len(tc.hosts))/(1<<MaxBits), "%s, all bits", tc.name)
	}
}

// shared returns how many hosts are in the shard of a host, averaged over the hosts.
func shared(hosts []string) float64 {
	count, sum := map[int]int{}, 0
	for _, h := range hosts {
		count[Of(h, MaxBits)]++
	}
	for _, n := range count {
		sum += n * n
	}
	return float64(sum) / float64(len(hosts))
}

func many(n int, name func(int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = name(i)
	}
	return out
}

// words returns names that people would choose: pairs of words.
func words() []string {
	list := strings.Fields(`cart checkout payment currency product catalog recommendation shipping email ad review rating
		order invoice user account auth token session search index stock price discount coupon report metric alert
		notify billing ledger wallet fraud risk profile image media upload export import sync queue worker`)
	var out []string
	for _, a := range list {
		out = append(out, a)
		for _, b := range list {
			if a != b {
				out = append(out, a+"-"+b)
			}
		}
	}
	return out
}

func suffixed(suffix string) []string {
	out := words()
	for i := range out {
		out[i] += suffix
	}
	return out
}
