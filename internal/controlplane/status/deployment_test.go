package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const worldWithoutRouter = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: moonsail
  listeners: [{name: http, port: 80, protocol: HTTP}]`

const (
	routerPod = `
---
apiVersion: v1
kind: Pod
metadata: {name: router, namespace: shop, labels: {gateway.networking.k8s.io/gateway-name: web}}`
	routerService = `
---
apiVersion: v1
kind: Service
metadata: {name: web-moonsail, namespace: shop}
spec: {type: ClusterIP, selector: {gateway.networking.k8s.io/gateway-name: web}, ports: [{port: 80}]}`
	balancedService = `
---
apiVersion: v1
kind: Service
metadata: {name: web-moonsail, namespace: shop}
spec: {type: LoadBalancer, selector: {gateway.networking.k8s.io/gateway-name: web}, ports: [{port: 80}]}`
	addressedService = balancedService + `
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}`
	labelledService = `
---
apiVersion: v1
kind: Service
metadata: {name: routers, namespace: shop, labels: {gateway.networking.k8s.io/gateway-name: web}}
spec: {type: LoadBalancer, selector: {istio: edge}, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}`
	externalService = `
---
apiVersion: v1
kind: Service
metadata: {name: web-moonsail, namespace: shop}
spec: {type: LoadBalancer, externalIPs: [203.0.113.7], selector: {gateway.networking.k8s.io/gateway-name: web}, ports: [{port: 80}]}`
)

// TestStatusesOfDeployedGateways checks the conditions and addresses of Gateways that the control plane deploys.
func TestStatusesOfDeployedGateways(t *testing.T) {
	for name, c := range map[string]struct {
		world      string
		deployment *Deployment
		accepted   string
		programmed string
		addresses  []string
	}{
		"others run its routers": {worldWithoutRouter, nil, "Accepted", "NoResources no Pod or WorkloadEntry of this namespace has the label " +
			"gateway.networking.k8s.io/gateway-name: web: run a router with it", nil},
		"others run its routers, of which none runs now": {worldWithoutRouter + addressedService, nil, "Accepted", "NoResources", []string{"192.0.2.1"}},
		"their Service has the label":                    {worldWithoutRouter + labelledService, nil, "Accepted", "NoResources", []string{"192.0.2.1"}},
		"another Gateway's Service":                      {worldWithoutRouter + strings.ReplaceAll(labelledService, "gateway-name: web", "gateway-name: other"), nil, "Accepted", "NoResources", nil},
		"an external address":                            {worldWithoutRouter + externalService + routerPod, &Deployment{Name: "web-moonsail"}, "Accepted", "Programmed", []string{"203.0.113.7"}},
		"nothing exists yet":                             {worldWithoutRouter, &Deployment{Name: "web-moonsail"}, "Accepted", "AddressNotAssigned Service web-moonsail: it does not exist yet", nil},
		"no address":                                     {worldWithoutRouter + balancedService + routerPod, &Deployment{Name: "web-moonsail"}, "Accepted", "AddressNotAssigned Service web-moonsail: its load balancer has no address yet", nil},
		"no Pod":                                         {worldWithoutRouter + addressedService, &Deployment{Name: "web-moonsail"}, "Accepted", "Pending Deployment web-moonsail: it has no Pod yet", []string{"192.0.2.1"}},
		"all is there":                                   {worldWithoutRouter + addressedService + routerPod, &Deployment{Name: "web-moonsail"}, "Accepted", "Programmed", []string{"192.0.2.1"}},
		"annotations left out":                           {worldWithoutRouter + routerService + routerPod, &Deployment{Name: "web-moonsail", Ignored: []string{"annotation a.istio.io/b"}}, "Accepted", "Programmed Gateways may not set on Pods: annotation a.istio.io/b: use a ConfigMap", []string{"web-moonsail.shop.svc.cluster.local"}},
		"without load balancer":                          {worldWithoutRouter + routerService + routerPod, &Deployment{Name: "web-moonsail"}, "Accepted", "Programmed", []string{"web-moonsail.shop.svc.cluster.local"}},
		"a conflict":                                     {worldWithoutRouter, &Deployment{Name: "web-moonsail", Conflicts: []string{"Service web-moonsail: rename it"}}, "Accepted", "DeploymentConflict Service web-moonsail: rename it", nil},
		"a failure":                                      {worldWithoutRouter, &Deployment{Failure: "Service web-moonsail: not written"}, "Accepted", "DeploymentFailed Service web-moonsail: not written", nil},
		"parameters":                                     {worldWithoutRouter, &Deployment{Parameters: "no such ConfigMap"}, "InvalidParameters no such ConfigMap", "AddressNotAssigned", nil},
		"parameters, it runs on":                         {worldWithoutRouter + routerService + routerPod, &Deployment{Name: "web-moonsail", Parameters: "no such ConfigMap"}, "InvalidParameters no such ConfigMap", "Programmed", []string{"web-moonsail.shop.svc.cluster.local"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewTracker()
			snap := readWorld(t, b, c.world)
			before := b.gatewayObjectsSeen()
			b.SetDeployment(gatewayKey, c.deployment)
			require.Equal(t, c.deployment != nil, b.gatewayObjectsSeen() != before, "statuses are computed again")
			judgeAll(b, snap)
			j := b.objects[gatewayKey].judged
			require.Equal(t, c.accepted, explained(j.conditions[0]))
			require.Contains(t, explained(j.conditions[1]), c.programmed)
			require.Equal(t, c.addresses, j.gateway.addresses)
		})
	}
}

func explained(c condition) string {
	if c.message == "" {
		return c.reason
	}
	return c.reason + " " + c.message
}

// TestDeploymentsAreForgotten checks that statuses do not report what another control plane deploys.
func TestDeploymentsAreForgotten(t *testing.T) {
	b := NewTracker()
	readWorld(t, b, worldWithoutRouter)
	b.SetDeployment(gatewayKey, &Deployment{Name: "web-moonsail"})
	objects, _ := b.gatewayObjects()
	require.NotNil(t, objects[gatewayKey].deployment)
	b.ClearDeployments()
	objects, _ = b.gatewayObjects()
	require.Nil(t, objects[gatewayKey].deployment)
}

// TestStatusesAwaitDeployments checks that a new leader writes no status of a Gateway before it knows its deployment.
func TestStatusesAwaitDeployments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewTracker()
		snap := readWorld(t, b, worldWithoutRouter)
		judged := func() string {
			judgeAll(b, snap)
			if j := b.objects[gatewayKey].judged; j != nil {
				return j.conditions[1].reason
			}
			return ""
		}
		end := b.awaitDeployments()
		require.Empty(t, judged())
		before := b.gatewayObjectsSeen()
		b.SetDeployment(gatewayKey, nil)
		require.NotEqual(t, before, b.gatewayObjectsSeen(), "statuses are computed again")
		require.Equal(t, "NoResources", judged())
		b.ClearDeployments()
		require.Empty(t, judged())
		end()
		require.Equal(t, "NoResources", judged(), "others run the routers")

		defer b.awaitDeployments()()
		require.Empty(t, judged())
		before = b.gatewayObjectsSeen()
		time.Sleep(decideIn + time.Second) //nolint:forbidigo // the time is simulated
		require.NotEqual(t, before, b.gatewayObjectsSeen())
		require.Equal(t, "NoResources", judged(), "it does not wait for ever")
	})
}
