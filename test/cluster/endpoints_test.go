package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/test/kubetest"
)

// ofPods are services of the same Pods: with ready Pods only, with all Pods, and with one IP family preferred.
const ofPods = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}], selector: {app: web}}
---
apiVersion: v1
kind: Service
metadata: {name: early}
spec: {ports: [{name: http, port: 80}], selector: {app: web}, publishNotReadyAddresses: true}
---
apiVersion: v1
kind: Service
metadata: {name: four}
spec: {ports: [{name: http, port: 80}], selector: {app: web}, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6]}
---
apiVersion: v1
kind: Service
metadata: {name: six}
spec: {ports: [{name: http, port: 80}], selector: {app: web}, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]}
`

// podAt is a Pod whose containers end an hour after its deletion.
func podAt(name, ips string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}, annotations: {%s: %q, %s: 1h}}
spec: {terminationGracePeriodSeconds: 7200, containers: [{name: a, image: a}]}
`, name, kubetest.AnnotationIP, ips, kubetest.AnnotationStopAfter)
}

// sliceBesides is an EndpointSlice of the service web that a user wrote.
const sliceBesides = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: besides, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
- {addresses: [10.97.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: a}}
- {addresses: [10.97.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: b}}
- {addresses: [10.97.0.9], conditions: {ready: true}}
`

// endpointsOf follows the endpoints of a namespace that a proxy is sent.
type endpointsOf struct {
	t  *testing.T
	c  *kubetest.Cluster
	ns string
	of map[string]*assigned
}

// holds waits until a service has these endpoints.
func (e *endpointsOf) holds(service string, want ...string) {
	e.t.Helper()
	e.c.Eventually(e.t, fmt.Sprintf("%s has endpoints %v", service, want), func(context.Context) error {
		got, failed := e.of[service].newest()
		if failed != nil {
			return failed
		}
		if got == nil || !slices.Equal(want, slices.Sorted(maps.Keys(got))) {
			return fmt.Errorf("the proxy has %v", got)
		}
		return nil
	})
}

func (e *endpointsOf) ready(pod string, ready bool) {
	e.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%t"}}}`, kubetest.AnnotationReady, ready)
	_, err := e.c.Client.CoreV1().Pods(e.ns).Patch(e.t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(e.t, err)
}

// TestEndpointsOfPods checks endpoints while Pods become ready and not ready, are listed in two EndpointSlices, have
// addresses of both families, and terminate.
func TestEndpointsOfPods(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, ofPods+"---"+podAt("a", "10.97.0.1,fd97::1")+"---"+podAt("b", "10.97.0.2,fd97::2"))
	s := runControl(t, c, func(o *controlplane.Options) { o.Status = false })
	e := &endpointsOf{t: t, c: c, ns: ns, of: map[string]*assigned{}}
	for _, name := range []string{"web", "early", "four", "six"} {
		e.of[name] = watchEndpoints(t, s.addr, ns, "outbound|80||"+name+"."+ns+".svc.cluster.local")
	}
	const a, b, besides = "10.97.0.1", "10.97.0.2", "10.97.0.9"
	e.holds("web", a, b)
	e.holds("early", a, b)
	e.holds("four", a, b)
	e.holds("six", "fd97::1", "fd97::2")

	e.ready("a", false)
	e.holds("web", b)
	e.holds("early", a, b)
	e.holds("six", "fd97::2")
	c.Apply(t, ns, sliceBesides)
	e.holds("web", a, b, besides) // each once, in the better state
	c.Delete(t, ns, sliceBesides)
	e.holds("web", b)

	e.ready("a", true)
	e.holds("web", a, b)
	require.NoError(t, c.Client.CoreV1().Pods(ns).Delete(t.Context(), "b", metav1.DeleteOptions{}))
	e.holds("web", a)
	e.ready("a", false)
	e.holds("web", b) // the only endpoint: it terminates, but still serves
	e.ready("b", false)
	e.holds("web")
}
