package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/kubetest"
)

// asked is a control plane on a cluster, and the service that questions are about.
type asked struct {
	t       *testing.T
	c       *kubetest.Cluster
	ns, url string
	file    string
}

// startAsked starts a control plane with two proxies, one of which has another name, that have a cluster of the
// service.
func startAsked(t *testing.T, c *kubetest.Cluster, other string) (a *asked, url string, healthy, second *proxy) {
	t.Helper()
	a = &asked{t: t, c: c, ns: c.Namespace(t), file: filepath.Join(t.TempDir(), "rule.yaml")}
	xds, url := serve(t, c)
	a.url = url
	require.Eventually(t, func() bool { return ready(t, url) }, time.Minute, 10*time.Millisecond)
	healthy, second = connectAs(t, xds, a.ns, "healthy", "10.9.9.1"), connectAs(t, xds, a.ns, other, "10.9.9.2")
	a.endpoint(1)
	a.rule(1)
	return a, url, healthy, second
}

const askedService = `apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: %[1]s}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews-1, namespace: %[1]s, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.2.%[2]d], conditions: {ready: true}}]
`

// endpoint replaces the service's endpoints by one.
func (a *asked) endpoint(last int) {
	a.t.Helper()
	a.c.Apply(a.t, a.ns, fmt.Sprintf(askedService, a.ns, last))
}

// rule changes the service's DestinationRule, and the file that questions are about.
func (a *asked) rule(connections int) {
	a.t.Helper()
	text := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: %s}
spec: {host: reviews, trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}}
`, a.ns, connections)
	require.NoError(a.t, os.WriteFile(a.file, []byte(text), 0o600))
	a.c.Apply(a.t, a.ns, text)
}

// wait runs "moonsail wait" for the file.
func (a *asked) wait(timeout string, more ...string) (status int, out string) {
	a.t.Helper()
	return ask(a.t, append([]string{"wait", a.file, "--timeout", timeout, "--address", a.url}, more...)...)
}

// says repeats a question until the answer contains all parts.
func (a *asked) says(args []string, parts ...string) {
	a.t.Helper()
	a.c.Eventually(a.t, strings.Join(args, " "), func(ctx context.Context) error {
		_, out := askUntil(ctx, append(args, "--address", a.url)...)
		for _, p := range parts {
			if !strings.Contains(out, p) {
				return errors.New(p + " is not in " + out)
			}
		}
		return nil
	})
}

// TestAnswersDuringFaultsOnCluster checks on a real API server that answers name the proxy that does not answer,
// refuses, or is cut off, and the reason. While the API server is paused, answers must contain what is known.
func TestAnswersDuringFaultsOnCluster(t *testing.T) {
	c := kubetest.Alone(t)
	a, url, healthy, stopped := startAsked(t, c, "stopped")
	status, out := a.wait("1m")
	require.Zero(t, status, out)
	require.Contains(t, out, "distributed to 2 of 2 proxies (100 %)")
	explain := []string{"explain", "destinationrule/reviews", "-n", a.ns}

	// Stopped: the proxy does not answer and stays connected.
	stopped.mu.Lock()
	a.rule(2)
	status, out = a.wait("1m", "--for", "distribution=50%")
	require.Zero(t, status, out)
	status, out = a.wait("2s")
	require.Equal(t, 3, status, out)
	require.Contains(t, out, "distributed to 1 of 2 proxies (50 %); 1 behind")
	require.Contains(t, out, "stopped."+a.ns+": has not answered CDS for ")
	a.says(explain, "stopped."+a.ns, "has not answered CDS")
	a.says([]string{"proxies"}, "BEHIND")
	a.endpoint(2)
	a.says([]string{"stale"}, "stopped."+a.ns, "10.1.2.1")
	stopped.mu.Unlock()
	a.says([]string{"stale"}, "no connected proxy holds a removed endpoint")
	status, out = a.wait("1m")
	require.Zero(t, status, out)

	// Refused.
	refuse := func(p *proxy, name string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refuses = name
	}
	refuse(healthy, "outbound|80||reviews."+a.ns+".svc.cluster.local")
	a.rule(3)
	status, out = a.wait("1m")
	require.Equal(t, 4, status, out)
	require.Contains(t, out, "healthy."+a.ns+": refused CDS outbound|80||reviews.")
	require.Contains(t, out, "not with me")
	a.says(explain, "healthy."+a.ns, "not with me")
	refuse(healthy, "")
	a.rule(4)
	status, out = a.wait("1m")
	require.Zero(t, status, out)

	// Cut off.
	stopped.cut()
	a.says([]string{"proxies"}, "healthy")
	c.Eventually(t, "it is gone", func(ctx context.Context) error {
		if _, out := askUntil(ctx, "proxies", "--address", url); strings.Contains(out, "stopped") {
			return errors.New(out)
		}
		return nil
	})
	a.rule(5)
	status, out = a.wait("1m")
	require.Zero(t, status, out)
	require.Contains(t, out, "distributed to 1 of 1 proxies (100 %)")

	// The API server does not answer: what came before is known.
	c.Pause(t)
	defer c.Resume(t)
	a.says(explain, "distributed", "healthy")
}
