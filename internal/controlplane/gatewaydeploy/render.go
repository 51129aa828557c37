package gatewaydeploy

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// kind is a kind of objects that a Gateway may get.
type kind struct {
	overlay  string // key of its overlays in ConfigMaps
	resource schema.GroupVersionResource
	kind     string
	example  any // for the strategic merge of overlays
	// optional objects exist only if there is an overlay for them.
	optional bool
	render   func(*plan, *inject.Config) (runtime.Object, error)
}

// Kinds with rules of their own.
const (
	kindDeployment = "Deployment"
	kindAutoscaler = "HorizontalPodAutoscaler"
)

// kinds are in the order in which they are written.
var kinds = []kind{
	{"serviceAccount", corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "ServiceAccount", corev1.ServiceAccount{}, false, (*plan).serviceAccount},
	{"deployment", appsv1.SchemeGroupVersion.WithResource("deployments"), kindDeployment, appsv1.Deployment{}, false, (*plan).deployment},
	{"service", corev1.SchemeGroupVersion.WithResource("services"), "Service", corev1.Service{}, false, (*plan).serviceObject},
	{"horizontalPodAutoscaler", autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"), kindAutoscaler,
		autoscalingv2.HorizontalPodAutoscaler{}, true, (*plan).autoscaler},
	{"podDisruptionBudget", policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), "PodDisruptionBudget",
		policyv1.PodDisruptionBudget{}, true, (*plan).disruptionBudget},
}

// object is an object that a Gateway should have.
type object struct {
	*kind
	*unstructured.Unstructured
	// keepsReplicas: it is a Deployment whose number of replicas an autoscaler decides.
	keepsReplicas bool
}

// title names the object in messages.
func (o *object) title() string { return o.kind.kind + " " + o.GetName() }

// renderError is about a Gateway's annotations, or the configuration of injection. Trying again does not help.
type renderError struct{ error }

// render returns the objects of a plan, with the overlays of ConfigMaps, in order.
func (p *plan) render(config *inject.Config, overlays []overlay) ([]object, error) {
	var out []object
	for i := range kinds {
		k := &kinds[i]
		typed, err := k.render(p, config)
		if err != nil {
			return nil, renderError{err}
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, err
		}
		delete(fields, "status")
		dropEmpty(fields)
		gvk := k.resource.GroupVersion().WithKind(k.kind)
		fields["apiVersion"], fields["kind"] = gvk.GroupVersion().String(), gvk.Kind
		fields, changed, err := k.overlaid(fields, overlays)
		if err != nil {
			return nil, err
		}
		if changed || !k.optional {
			out = append(out, object{kind: k, Unstructured: &unstructured.Unstructured{Object: fields}})
		}
	}
	leaveToAutoscaler(out)
	return out, nil
}

// dropEmpty removes what Go encodes for unset fields. Server-side apply would claim these fields.
func dropEmpty(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			dropEmpty(e)
			if m, ok := e.(map[string]any); e == nil || ok && len(m) == 0 && (k == "strategy" || k == "resources") {
				delete(v, k)
			}
		}
	case []any:
		for _, e := range v {
			dropEmpty(e)
		}
	}
}

func (p *plan) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: p.Namespace, Labels: p.labels, Annotations: p.annotations,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: gatewayapi.Group + "/v1", Kind: "Gateway", Name: p.Name, UID: p.UID,
		}},
	}
}

// selector selects the Gateway's Pods.
func (p *plan) selector() map[string]string {
	return map[string]string{model.LabelGatewayName: p.gateway.Name}
}

func (p *plan) serviceAccount(*inject.Config) (runtime.Object, error) {
	return &corev1.ServiceAccount{ObjectMeta: p.meta(p.account)}, nil
}

func (p *plan) serviceObject(*inject.Config) (runtime.Object, error) {
	policy := corev1.IPFamilyPolicyPreferDualStack
	meta := p.meta(p.name)
	meta.Labels, meta.Annotations = p.service.labels, p.service.annotations
	s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: p.serviceType, Selector: p.selector(), Ports: p.ports, IPFamilyPolicy: &policy,
	}}
	if len(p.Spec.Addresses) > 0 && p.serviceType == corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerIP = p.Spec.Addresses[0].Value
	}
	return s, nil
}

func (p *plan) autoscaler(*inject.Config) (runtime.Object, error) {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: p.meta(p.name), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kindDeployment, Name: p.name},
		MaxReplicas:    1, // required; the overlay has the wanted number
	}}, nil
}

func (p *plan) disruptionBudget(*inject.Config) (runtime.Object, error) {
	return &policyv1.PodDisruptionBudget{ObjectMeta: p.meta(p.name), Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: p.selector()},
	}}, nil
}

func (p *plan) deployment(config *inject.Config) (runtime.Object, error) {
	pod, err := p.pod(config)
	if err != nil {
		return nil, err
	}
	return &appsv1.Deployment{ObjectMeta: p.meta(p.name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: p.selector()},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
	}}, nil
}

// Labels and annotations of injection, and what Prometheus reads.
const (
	labelInject         = "sidecar.istio.io/inject"
	annotationTemplates = "inject.istio.io/templates"
	annotationInjected  = "sidecar.istio.io/status"
	annotationOverrides = "proxy.istio.io/overrides"
	proxyContainer      = "istio-proxy"
	metricsPort         = 15020
)

// pod returns the Pod of the Deployment's template: the injection of a router into a Pod without application. The webhook does
// not inject it again.
func (p *plan) pod(config *inject.Config) (*corev1.Pod, error) {
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Labels: maps.Clone(p.labels), Annotations: maps.Clone(p.annotations),
	}, Spec: p.podSpec()}
	if bare.Annotations == nil {
		bare.Annotations = map[string]string{}
	}
	if _, ok := bare.Annotations[annotationTemplates]; !ok {
		bare.Annotations[annotationTemplates] = inject.GatewayTemplate
	}
	owner := inject.Owner{
		TypeMeta:  metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kindDeployment},
		Namespace: p.Namespace, Name: p.name,
	}
	out, err := config.Inject(bare, owner)
	if err != nil {
		return nil, fmt.Errorf("routers cannot be rendered: %w", err)
	}
	out.Labels[labelInject] = "false"
	for _, a := range []string{annotationTemplates, annotationInjected, annotationOverrides} {
		delete(out.Annotations, a)
	}
	return out, nil
}

// podSpec is what injection leaves to the Pod: the restricted Pod Security Standard requires the seccomp profile, and probes
// once a second make a started router ready early.
func (p *plan) podSpec() corev1.PodSpec {
	port := func(name string, number int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}
	}
	no := false
	return corev1.PodSpec{
		// Routers do not call the API server: injection mounts a token that only the control plane accepts.
		ServiceAccountName: p.account, AutomountServiceAccountToken: &no,
		SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: proxyContainer, Image: "auto", Ports: []corev1.ContainerPort{port("metrics", metricsPort), port(statusPortName, statusPort)},
			StartupProbe: &corev1.Probe{
				ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(statusPort)}},
				InitialDelaySeconds: 1, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 30,
			},
		}},
	}
}
