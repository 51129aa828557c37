package gatewaydeploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// Labels and annotations of Istio and the Gateway API.
const (
	labelManaged          = "gateway.istio.io/managed"
	labelClass            = "gateway.networking.k8s.io/gateway-class-name"
	labelClassDefaults    = "gateway.istio.io/defaults-for-class"
	annotationName        = "gateway.istio.io/name-override"
	annotationAccount     = "gateway.istio.io/service-account"
	annotationVersion     = "gateway.istio.io/controller-version"
	annotationServiceType = "networking.istio.io/service-type"
	annotationLastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// prefixGatewayAPI is of labels and annotations that infrastructure cannot set.
const prefixGatewayAPI = "gateway.networking.k8s.io/"

// managedBy is the value of labelManaged. Istio's is its controller's name in this form.
var managedBy = map[string]string{
	gatewayapi.ControllerIstio: "istio.io-gateway-controller", gatewayapi.ControllerMoonsail: "moonsail.dev-gateway-controller",
}

// gateway is the part of a Gateway that this package reads.
type gateway struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		GatewayClassName string          `json:"gatewayClassName"`
		Addresses        []address       `json:"addresses"`
		Infrastructure   *infrastructure `json:"infrastructure"`
		Listeners        []listener      `json:"listeners"`
	} `json:"spec"`
}

type address struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

type infrastructure struct {
	Labels        map[string]string `json:"labels"`
	Annotations   map[string]string `json:"annotations"`
	ParametersRef *reference        `json:"parametersRef"`
}

type reference struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

type listener struct {
	Name     string `json:"name"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
}

func readGateway(o *unstructured.Unstructured) (*gateway, error) {
	g := &gateway{}
	return g, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, g)
}

// key returns the Gateway's key in the model.
func (g *gateway) key() model.Key {
	return model.Key{Kind: model.KindKubernetesGateway, Namespace: g.Namespace, Name: g.Name}
}

// deployed reports whether the Gateway's routers are deployed here. A Gateway with a hostname address or with several addresses is
// deployed by others.
func (g *gateway) deployed() bool {
	var types []string
	for _, a := range g.Spec.Addresses {
		types = append(types, a.Type)
	}
	return gatewayapi.ControllerOf(g.Spec.GatewayClassName) != "" && gatewayapi.Deployable(types...)
}

// parameters returns the ConfigMap that parametersRef names; empty: none.
func (g *gateway) parameters() (string, error) {
	if g.Spec.Infrastructure == nil || g.Spec.Infrastructure.ParametersRef == nil {
		return "", nil
	}
	ref := g.Spec.Infrastructure.ParametersRef
	if ref.Kind != "ConfigMap" || ref.Group != "" {
		return "", fmt.Errorf("spec.infrastructure.parametersRef: %s: use a ConfigMap", schema.GroupKind{Group: ref.Group, Kind: ref.Kind})
	}
	return ref.Name, nil
}

// plan has the names and values that a Gateway's objects have in common.
type plan struct {
	*gateway
	name                string            // of all objects but the ServiceAccount
	account             string            // name of the ServiceAccount
	foreignAccount      bool              // the account is the user's choice: an existing one of others is used
	labels, annotations map[string]string // of all objects but the Service
	service             struct{ labels, annotations map[string]string }
	ignored             []string // labels and annotations that only the Service has
	serviceType         corev1.ServiceType
	ports               []corev1.ServicePort
}

// planOf computes the plan of a Gateway that is deployed, with its listeners and those of its ListenerSets. Errors name the field.
func planOf(g *gateway, listeners []listener) (*plan, error) {
	usual := g.Name + "-" + g.Spec.GatewayClassName
	p := &plan{
		gateway: g, name: cmp.Or(g.Annotations[annotationName], usual), account: cmp.Or(g.Annotations[annotationAccount], usual),
		foreignAccount: g.Annotations[annotationAccount] != "", serviceType: corev1.ServiceTypeLoadBalancer, ports: servicePorts(listeners),
	}
	p.service.labels, p.service.annotations = g.objectLabels(), g.objectAnnotations()
	i := cmp.Or(g.Spec.Infrastructure, &infrastructure{})
	p.labels = safe(p.service.labels, i.Labels, safeLabels, "label", &p.ignored)
	p.annotations = safe(p.service.annotations, i.Annotations, safeAnnotations, "annotation", &p.ignored)
	if text, ok := p.annotations[annotationProxyConfig]; ok {
		p.annotations[annotationProxyConfig] = safeConfig(text, &p.ignored)
	}
	if t, ok := g.Annotations[annotationServiceType]; ok {
		p.serviceType = corev1.ServiceType(t)
	}
	switch p.serviceType {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP:
		return p, nil
	}
	return nil, fmt.Errorf("metadata.annotations[%s]: unknown type %q: use LoadBalancer, NodePort or ClusterIP", annotationServiceType, p.serviceType)
}

// objectLabels returns the labels of all objects: those of infrastructure, or else the Gateway's own, and ours.
func (g *gateway) objectLabels() map[string]string {
	out := maps.Clone(g.Labels)
	if i := g.Spec.Infrastructure; i != nil && i.Labels != nil {
		out = withoutGatewayAPI(i.Labels)
	}
	if out == nil {
		out = map[string]string{}
	}
	out[model.LabelGatewayName] = g.Name
	out[labelClass] = g.Spec.GatewayClassName
	out[labelManaged] = managedBy[gatewayapi.ControllerOf(g.Spec.GatewayClassName)]
	return out
}

// objectAnnotations returns the annotations of all objects.
func (g *gateway) objectAnnotations() map[string]string {
	out := maps.Clone(g.Annotations)
	if i := g.Spec.Infrastructure; i != nil && i.Annotations != nil {
		out = withoutGatewayAPI(i.Annotations)
	}
	for _, a := range []string{annotationLastApplied, annotationName, annotationAccount, annotationVersion} {
		delete(out, a)
	}
	return out
}

func withoutGatewayAPI(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, prefixGatewayAPI) })
	return out
}

// Names of ports.
const (
	statusPortName = "status-port"
	statusPort     = 15021
	maxPortName    = 63
)

// servicePorts returns a port of the Service for each port of the listeners for TCP, and the one of the health check.
func servicePorts(listeners []listener) []corev1.ServicePort {
	tcp := "tcp"
	out := []corev1.ServicePort{{
		Name: statusPortName, Port: statusPort, TargetPort: intstr.FromInt32(statusPort), Protocol: corev1.ProtocolTCP, AppProtocol: &tcp,
	}}
	for _, l := range listeners {
		app := strings.ToLower(l.Protocol)
		taken := slices.ContainsFunc(out, func(p corev1.ServicePort) bool { return p.Port == l.Port })
		if taken || app == "udp" { // some load balancers refuse a Service with both TCP and UDP, and no router listens for UDP
			continue
		}
		out = append(out, corev1.ServicePort{
			Name: portName(l.Name, l.Port, out), Port: l.Port, TargetPort: intstr.FromInt32(l.Port), Protocol: corev1.ProtocolTCP, AppProtocol: &app,
		})
	}
	return out
}

// portName returns a name for the port of a listener, whose name may have dots and 253 characters. Other ports do not have it.
func portName(of string, port int32, others []corev1.ServicePort) string {
	name := strings.ReplaceAll(of, ".", "-")
	name = strings.Trim(name[:min(len(name), maxPortName)], "-")
	taken := func(n string) bool {
		return slices.ContainsFunc(others, func(p corev1.ServicePort) bool { return p.Name == n })
	}
	if name != "" && !taken(name) {
		return name
	}
	suffix := "-" + strconv.Itoa(int(port))
	for n := 2; ; n++ { // ends: there are finitely many others, and a suffix of numbers is shorter than a name
		if out := strings.Trim(name[:min(len(name), maxPortName-len(suffix))]+suffix, "-"); !taken(out) {
			return out
		}
		suffix = fmt.Sprintf("-%d-%d", port, n)
	}
}
