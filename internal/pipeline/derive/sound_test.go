package derive

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// TestNoDuplicateDomains holds what Envoy would refuse: two virtual hosts of a route
// configuration with one domain.
func TestNoDuplicateDomains(t *testing.T) {
	for seed := range lives(25) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 2)), secrets: seed%2 == 0, gateways: seed%3 == 0}
		st, d := store.New(), New(worldMesh(), 1)
		d.SetSharding(splitSoon)
		have := live(w, st, d, 60)
		for k, views := range have {
			requireSound(t, k, views)
		}
	}
}

// requireSound checks references between the resources of one scope.
func requireSound(t *testing.T, k GroupKey, v *Delta) {
	t.Helper()
	seen := map[string]string{}
	for name, vh := range v.VirtualHosts {
		require.NotEmpty(t, vh.Domains, name)
		// Where two services claim one address, the loser's own route configuration is unused.
		if !strings.Contains(vh.RouteConfig, ":") {
			require.NotNil(t, v.RouteConfigs[vh.RouteConfig], "%s: %s has no route configuration", k, name)
		}
		for _, dom := range vh.Domains {
			at := vh.RouteConfig + " " + dom
			require.Empty(t, seen[at], "%s: %s: domain %q is also in %s", k, name, dom, seen[at])
			seen[at] = name
		}
	}
	for _, l := range v.Listeners {
		requireDisjoint(t, l)
		requireServed(t, k, l)
		for _, c := range l.Chains {
			if c.HTTP != nil && c.HTTP.ShardBits > 0 && l.Name != routeshard.Listener {
				requireParts(t, v, c.HTTP)
			} else if c.HTTP != nil && c.HTTP.RouteConfig != "" && l.Name != routeshard.Listener {
				require.NotNil(t, v.RouteConfigs[c.HTTP.RouteConfig], "%s: %s", k, l.Name)
			}
		}
	}
	for name, e := range v.Endpoints {
		require.NotNil(t, v.Clusters[name], "%s: endpoints of no cluster %s", k, name)
		requireDense(t, e)
	}
	for name, secret := range v.Secrets {
		if model.IsConfigMap(name) {
			require.Zero(t, secret.PrivateKey, name)
			continue
		}
		require.True(t, k.Account != "" && (secret.PrivateKey.PEM() == "" || k.Account == "reader"), "%s: %s", k, name)
	}
	for _, c := range v.Clusters {
		require.False(t, c.MeshTLS() && !k.Identity, "%s: %s waits for certificates that nobody serves", k, c.Name)
		if c.Discovery == 0 && !c.Inbound {
			require.Contains(t, v.Endpoints, c.Name, k.String())
			require.False(t, c.AutoTLS && !v.Endpoints[c.Name].TellPlain, "%s: %s: endpoints without a sidecar get TLS", k, c.Name)
		}
	}
}

// requireServed checks that a listener waits for certificates only where they are served,
// and that nothing but mutual TLS gets to where a chain asks for it alone.
func requireServed(t *testing.T, k GroupKey, l *ir.Listener) {
	t.Helper()
	mutual, plain := map[uint32]bool{}, map[uint32]bool{}
	for _, c := range l.Chains {
		require.False(t, c.TLS != nil && c.TLS.IsMesh() && !k.Identity, "%s: %s", k, c.Name)
		port := c.Match.DestinationPort
		mutual[port] = mutual[port] || c.TLS != nil
		plain[port] = plain[port] || c.TLS == nil
	}
	if l.Default == nil || k.Type == model.ProxyRouter {
		return
	}
	for port := range mutual {
		require.True(t, plain[port] || !mutual[port], "%s: %s: the default chain takes what port %d refuses", k, l.Name, port)
	}
}

// requireDisjoint checks what Envoy refuses in a listener: two filter chains that match
// the same, where each of a chain's addresses and server names counts by itself.
func requireDisjoint(t *testing.T, l *ir.Listener) {
	t.Helper()
	seen := map[string]string{}
	for _, c := range l.Chains {
		for _, match := range singleMatches(c.Match) {
			require.Empty(t, seen[match], "%s: chains %s and %s both match %s", l.Name, seen[match], c.Name, match)
			seen[match] = c.Name
		}
	}
}

func singleMatches(m ir.ChainMatch) []string {
	destinations := []string{""}
	if len(m.Destinations) > 0 {
		destinations = nil
	}
	for _, d := range m.Destinations {
		destinations = append(destinations, d.Masked().String())
	}
	names := m.ServerNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []string
	for _, d := range destinations {
		for _, n := range names {
			out = append(out, fmt.Sprint(m.DestinationPort, " to ", d, " for ", n, " by ", m.TransportProtocol, m.ALPN))
		}
	}
	return out
}

// requireDense checks that priorities have no gaps, as Envoy wants them.
func requireDense(t *testing.T, e *ir.Endpoints) {
	t.Helper()
	next := uint32(0)
	for _, l := range e.Localities {
		require.LessOrEqual(t, l.Priority, next, "%s: a gap before priority %d", e.Cluster, l.Priority)
		if l.Priority == next {
			next++
		}
		require.NotEmpty(t, l.Endpoints, e.Cluster)
	}
}
