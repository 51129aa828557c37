package gatewayapi

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	routerImage = "moonsail"
	labelName   = "gateway.networking.k8s.io/gateway-name"
)

// gateways runs a router for each Gateway of the class, as an operator of Moonsail would: a Deployment, and a Service
// with the router's address.
func (m *machine) gateways(ctx context.Context) error {
	var list gatewayv1.GatewayList
	if err := m.client.List(ctx, &list); err != nil {
		return err
	}
	var failed []error
	for i := range list.Items {
		if g := &list.Items[i]; g.Spec.GatewayClassName == className && g.DeletionTimestamp == nil {
			failed = append(failed, m.gateway(ctx, g))
		}
	}
	return errors.Join(failed...)
}

func (m *machine) gateway(ctx context.Context, g *gatewayv1.Gateway) error {
	meta := metav1.ObjectMeta{
		Name: "router-" + g.Name, Namespace: g.Namespace, Labels: map[string]string{labelName: g.Name},
		// it is deleted with the Gateway
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "Gateway"})},
	}
	ports := portsOf(g)
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: meta.Labels, Ports: ports,
	}}
	for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: meta}, deployment(meta), service} {
		if err := m.client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s/%s: %w", g.Namespace, g.Name, err)
		}
	}
	if err := m.client.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
		return err
	}
	if !samePorts(service.Spec.Ports, ports) {
		service.Spec.Ports = ports
		if err := m.client.Update(ctx, service); err != nil {
			return err
		}
	}
	return m.publish(ctx, service)
}

// portsOf returns the ports of a Gateway's listeners, each once.
func portsOf(g *gatewayv1.Gateway) []corev1.ServicePort {
	var out []corev1.ServicePort
	seen := map[int32]bool{}
	for _, l := range g.Spec.Listeners {
		if !seen[l.Port] {
			out = append(out, corev1.ServicePort{Name: fmt.Sprint("p", l.Port), Port: l.Port})
		}
		seen[l.Port] = true
	}
	return out
}

func samePorts(a, b []corev1.ServicePort) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Port != b[i].Port {
			return false
		}
	}
	return true
}

func deployment(meta metav1.ObjectMeta) *appsv1.Deployment {
	one := int32(1)
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels, Annotations: map[string]string{annotationReady: "false"}},
			Spec: corev1.PodSpec{
				ServiceAccountName: meta.Name, Containers: []corev1.Container{{Name: "istio-proxy", Image: routerImage}},
			},
		},
	}}
}

// publish writes the address of a router into its Service's status, as a load balancer would.
func (m *machine) publish(ctx context.Context, service *corev1.Service) error {
	var pods corev1.PodList
	if err := m.client.List(ctx, &pods, client.InNamespace(service.Namespace), client.MatchingLabels(service.Spec.Selector)); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil || m.pods[pod.UID] == nil {
			continue
		}
		want := []corev1.LoadBalancerIngress{{IP: pod.Status.PodIP}}
		if have := service.Status.LoadBalancer.Ingress; len(have) == 1 && have[0].IP == want[0].IP {
			return nil
		}
		service.Status.LoadBalancer.Ingress = want
		return m.client.Status().Update(ctx, service)
	}
	return nil
}
