package istiod

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/test/kubetest"
)

// bench is what all cases share.
type bench struct {
	cluster *kubetest.Cluster
	planes  [2]*plane // istiod, Moonsail
	cases   int       // so far
}

// newBench starts an API server and both control planes.
func newBench(t *testing.T, istiodPath string) *bench {
	t.Helper()
	c := kubetest.Start(t, "--service-cidr=10.0.0.0/12,fd00:96::/112")
	c.Apply(t, "", `
apiVersion: v1
kind: Namespace
metadata: {name: sentinel}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: sentinel}
spec: {egress: [{hosts: ["./*"]}]}
`)
	c.BareNodes(t)
	return &bench{cluster: c, planes: [2]*plane{startIstiod(t, c, istiodPath), startMoonsail(t, c)}}
}

// settle bounds how long a configuration may go on changing after both control planes know the last object.
const settle = 5 * time.Second

// quiet is how long a configuration must not change. Neither control plane tells when it has nothing more to send.
const quiet = 150 * time.Millisecond

// run applies a case, waits until both control planes have it, and compares them.
func (b *bench) run(t *testing.T, k *testCase, listed func(*compare.Difference) bool) (*compare.Report, *applied) {
	t.Helper()
	a := apply(t, b.cluster, k)
	hosts := a.hosts(t)
	b.cases++
	writeSentinel(t, b.cluster, b.cases)
	for _, p := range b.planes {
		b.cluster.Eventually(t, p.name+" has the objects", func(ctx context.Context) error { return p.has(ctx, b.cases) })
	}
	sides, sum := b.sides(t, k, hosts)
	for end, seen := time.Now().Add(settle), uint64(0); ; {
		if seen != sum { // equal twice in a row
			seen = sum
			<-time.After(quiet)
			sides, sum = b.sides(t, k, hosts)
			if seen != sum && time.Now().Before(end) {
				continue
			}
		}
		report, err := decide(t.Context(), k, sides)
		require.NoError(t, err)
		if agrees(report, listed) || time.Now().After(end) {
			return report, a
		}
		// What differs may be a change that is still on its way.
		<-time.After(4 * quiet)
		if sides, sum = b.sides(t, k, hosts); seen == sum {
			return report, a
		}
	}
}

func agrees(r *compare.Report, listed func(*compare.Difference) bool) bool {
	for i := range r.Differences {
		if !listed(&r.Differences[i]) {
			return false
		}
	}
	return true
}

// has returns an error until the control plane knows the n-th sentinel.
func (p *plane) has(ctx context.Context, n int) error {
	all, _, err := p.client.Proxy(ctx, nodeOf(watcher, "cluster.local", ""))
	if err != nil {
		return err
	}
	for _, a := range all {
		c := &clusterv3.Cluster{}
		if a.MessageIs(c) && a.UnmarshalTo(c) == nil && c.Name == "outbound|65||"+sentinel(n) {
			return nil
		}
	}
	return fmt.Errorf("it has not seen the ServiceEntry %s", sentinel(n))
}

// sides connects as each proxy of a case to both control planes.
func (b *bench) sides(t *testing.T, k *testCase, hosts map[string]string) (sides [2]*compare.Side, sum uint64) {
	t.Helper()
	for i, plane := range b.planes {
		sides[i] = &compare.Side{Name: plane.name, Kind: []compare.Kind{compare.Istiod, compare.Moonsail}[i]}
		for _, p := range k.proxies {
			node := nodeOf(p, k.domain, cmp.Or(hosts[p.IP], hosts[p.Namespace+"/"+p.Name]))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			resources, _, err := plane.client.Proxy(ctx, node)
			cancel()
			require.NoError(t, err, "%s as %s", plane.name, p.Name)
			sum = sum*31 + sumOf(resources)
			proxy, err := proxyOf(p, k.domain, resources)
			require.NoError(t, err, "%s as %s", plane.name, p.Name)
			sides[i].Proxies = append(sides[i].Proxies, proxy)
		}
	}
	return sides, sum
}

// inboundPort is where interception leads. Nobody calls it directly.
const inboundPort = "15006"

// decide compares the sides about the case's calls and calls that are made from the configuration.
func decide(ctx context.Context, k *testCase, sides [2]*compare.Side) (*compare.Report, error) {
	names := map[string]string{}
	for i, p := range k.proxies {
		names[p.Name] = sides[0].Proxies[i].Name
	}
	calls := []compare.Call{}
	for _, c := range k.calls {
		calls = append(calls, compare.Call{Proxy: names[c.proxy], Call: c.call})
	}
	for i := range sides[0].Proxies {
		own, _ := compare.Calls(sides[0].Proxies[i], sides[1].Proxies[i]) // what is untried concerns both control planes alike
		for _, c := range own {
			if _, port, err := net.SplitHostPort(c.To); err != nil || !c.Inbound || port != inboundPort {
				calls = append(calls, c)
			}
		}
	}
	return compare.Run(ctx, sides[0], sides[1], calls)
}
