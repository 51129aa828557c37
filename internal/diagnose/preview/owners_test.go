package preview

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// running is a mesh as a cluster has it: Pods and endpoints. The Pods of reviews belong to the Deployment reviews-v1.
func running(more ...string) []string {
	pod := func(name, app, ip, owner string) string {
		return `apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: shop, labels: {app: ` + app + `, version: v1, pod-template-hash: abc, security.istio.io/tlsMode: istio}` + owner + `}
spec: {serviceAccountName: ` + app + `, containers: [{name: app, image: app}]}
status: {podIP: ` + ip + `, podIPs: [{ip: ` + ip + `}], phase: Running, conditions: [{type: Ready, status: "True"}]}`
	}
	owner := ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: reviews-v1-abc, uid: u, controller: true}]"
	return append([]string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\nspec: {clusterIP: 10.0.0.1, selector: {app: reviews}, ports: [{name: http, port: 9080}]}",
		pod("reviews-v1-abc-1", "reviews", "10.1.0.1", owner), pod("reviews-v1-abc-2", "reviews", "10.1.0.2", owner), pod("frontend-v1-abc-1", "frontend", "10.1.0.3", ""),
		`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews-1, namespace: shop, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
ports: [{name: http, port: 9080}]
endpoints:
- {addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: reviews-v1-abc-1, namespace: shop}}
- {addresses: [10.1.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: reviews-v1-abc-2, namespace: shop}}`,
	}, more...)
}

// ofRollouts makes Argo Rollouts of Deployments.
func ofRollouts(docs []string) []string {
	for i := range docs {
		docs[i] = strings.NewReplacer("apps/v1\nkind: Deployment", "argoproj.io/v1alpha1\nkind: Rollout", "pod-template-hash", "rollouts-pod-template-hash").Replace(docs[i])
	}
	return docs
}

// TestDeploymentsOfRunningPods checks that a Deployment in the change stands for the Pods that it has made.
func TestDeploymentsOfRunningPods(t *testing.T) {
	named := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: named, namespace: shop}\n" +
		"spec: {selector: {matchLabels: {app: reviews}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/frontend]}}]}]}"
	for name, tc := range map[string]struct {
		before, after []string
		objects       []string
		want          []string
	}{
		"nothing changes":          {running(), running(workload("reviews", "v1")), nil, nil},
		"of Pods without an owner": {running(), running(workload("frontend", "v1")), nil, nil},
		"another service account": {
			running(named), running(named, strings.Replace(workload("frontend", "v1"), "serviceAccountName: frontend", "serviceAccountName: other", 1)),
			[]string{"changed Deployment/shop/frontend-v1"},
			[]string{"reviews.shop.svc.cluster.local:9080 server: accepts -> answers 403, because no rule of shop/named allows it"},
		},
		"nothing of a Rollout changes": {ofRollouts(running()), ofRollouts(running(workload("reviews", "v1"))), nil, nil},
		"a Rollout whose labels no Service selects": {
			ofRollouts(running()), ofRollouts(running(strings.ReplaceAll(workload("reviews", "v1"), "app: reviews", "app: other"))),
			[]string{"changed Rollout/shop/reviews-v1"},
			[]string{"reviews.shop.svc.cluster.local:9080 answer: forwarded -> answers 503: reviews.shop.svc.cluster.local:9080 has no endpoint that takes calls"},
		},
		"labels that no Service selects": {
			running(), running(strings.ReplaceAll(workload("reviews", "v1"), "app: reviews", "app: other")),
			[]string{"changed Deployment/shop/reviews-v1"},
			[]string{"reviews.shop.svc.cluster.local:9080 answer: forwarded -> answers 503: reviews.shop.svc.cluster.local:9080 has no endpoint that takes calls"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Before: side(t, tc.before...), After: side(t, tc.after...)}
			Populate(&in.Before, &in.After, false)
			r, err := Compute(t.Context(), in)
			require.NoError(t, err)
			require.Empty(t, r.New)
			var objects []string
			for _, o := range r.Objects {
				objects = append(objects, o.Operation+" "+o.Object.String())
			}
			require.Equal(t, tc.objects, objects)
			require.Equal(t, tc.want, changesOf(r))
		})
	}
	t.Run("removed", func(t *testing.T) {
		in := Input{Before: side(t, running()...), After: side(t, running()...)}
		in.After.RemovePods(side(t, workload("reviews", "v1")).Templates[0])
		Populate(&in.Before, &in.After, false)
		r, err := Compute(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, []string{"reviews-v1-abc-1.shop", "reviews-v1-abc-2.shop"}, r.Gone)
		require.Equal(t, []string{"reviews.shop.svc.cluster.local:9080 answer: forwarded -> answers 503: reviews.shop.svc.cluster.local:9080 has no endpoint that takes calls"}, changesOf(r))
	})
}
