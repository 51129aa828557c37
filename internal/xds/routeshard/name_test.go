package routeshard

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRouteConfigOfShardNames(t *testing.T) {
	for _, rc := range []string{"80", "web.shop.svc.cluster.local:80", "10.0.0.1_80", "a~b", "50%"} {
		require.Equal(t, rc, RouteConfig(rc))
		for _, bits := range []int{0, 4, Bits} {
			for _, k := range []int{0, 1, Count(bits) - 1} {
				for _, form := range []string{rc, OnDemandForm(rc)} {
					name := Name(form, bits, k)
					require.Equal(t, rc, RouteConfig(name))
					require.Equal(t, form, Form(name))
					require.Equal(t, rc, Whole(form))
					require.Equal(t, form != rc, IsOnDemand(name), name)
					sibling, ok := Sibling(name, "reviews.shop:80")
					require.True(t, ok, name)
					require.Equal(t, Name(form, bits, Of("reviews.shop:80", bits)), sibling)
				}
			}
		}
	}
	for _, whole := range []string{"80~1", "80~3~1", "80~16~32", "80~16~-1", "80~16~01", "~", "80~~"} {
		require.Equal(t, whole, RouteConfig(whole), "not a shard")
		_, ok := Sibling(whole, "reviews")
		require.False(t, ok, whole)
	}
}

func TestKeyIsShardName(t *testing.T) {
	for _, rc := range []string{"80", "50%", OnDemandForm("80")} {
		key, ok := Key(KeyFormat(rc, 4), "Reviews.shop:9080")
		require.True(t, ok)
		require.Equal(t, Name(rc, 4, Of("reviews", 4)), key)
	}
	for _, other := range []string{"", "80~16~%CEL(1)%", "%REQ(:authority)%", KeyFormat("80", 4) + "x"} {
		_, ok := Key(other, "reviews")
		require.False(t, ok, other)
	}
}

// TestDomainsMatchShardsOfHosts: the shard of a host contains every domain that matches the host.
func TestDomainsMatchShardsOfHosts(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const letters = "abz019.-:[]"
	for range 2_000 {
		host := make([]byte, 1+r.IntN(8))
		for i := range host {
			host[i] = letters[r.IntN(len(letters))]
		}
		h := string(host)
		cut := r.IntN(len(h))
		for _, domain := range []string{h, "*", "*" + h[cut:], h[:cut] + "*"} {
			require.True(t, Takes(domain, 4, Of(h, 4)), "%q, %q", domain, h)
			var s Set
			s.Add(domain, 4)
			for k := range Count(4) {
				require.Equal(t, Takes(domain, 4, k), s.Has(k), "%q, %d", domain, k)
			}
		}
	}
	require.False(t, Takes("reviews.*", 4, Of("reviews", 4)^1), "the first label is known")
	require.True(t, strings.HasPrefix(KeyFormat("80", 4), "80~16~%CEL("))
}
