package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// use is what the mesh does with a kind.
type use uint8

const (
	useRead    use = iota // becomes a model object
	useLater              // Istio reads it, this mesh does not yet: a warning
	useNothing            // nothing to do with the mesh: no message
)

// apiKind is a row of the table of known kinds.
type apiKind struct {
	group, kind string
	versions    []string // empty: any
	use         use
	cluster     bool       // has no namespace
	as          model.Kind // in the model, where another kind has the name; empty: kind
}

// model is the kind of the objects that it becomes.
func (k apiKind) model() model.Kind {
	if k.as != "" {
		return k.as
	}
	return model.Kind(k.kind)
}

var (
	gatewayVersions  = []string{"v1", "v1beta1"}
	istioVersions    = []string{"v1", "v1beta1", "v1alpha3"}
	securityVersions = []string{"v1", "v1beta1"}
)

const (
	groupNetworking = "networking.istio.io"
	groupSecurity   = "security.istio.io"
	groupDiscovery  = "discovery.k8s.io"

	groupKubernetesNetworking = "networking.k8s.io"

	groupTelemetry  = "telemetry.istio.io"
	groupExtensions = "extensions.istio.io"
)

// readKinds are the kinds of the model; order is of no meaning.
var readKinds = []apiKind{
	{group: "", kind: "Namespace", versions: []string{"v1"}, cluster: true},
	{group: "", kind: "Service", versions: []string{"v1"}},
	{group: "", kind: "Pod", versions: []string{"v1"}},
	{group: "", kind: "Node", versions: []string{"v1"}, cluster: true},
	{group: "", kind: "ConfigMap", versions: []string{"v1"}},
	{group: "", kind: "Secret", versions: []string{"v1"}},
	{group: groupDiscovery, kind: "EndpointSlice", versions: []string{"v1"}},
	{group: groupKubernetesNetworking, kind: "Ingress", versions: []string{"v1"}},
	{group: groupKubernetesNetworking, kind: "IngressClass", versions: []string{"v1"}, cluster: true},
	{group: groupNetworking, kind: "ServiceEntry", versions: istioVersions},
	{group: groupNetworking, kind: "WorkloadEntry", versions: istioVersions},
	{group: groupNetworking, kind: "VirtualService", versions: istioVersions},
	{group: groupNetworking, kind: "DestinationRule", versions: istioVersions},
	{group: groupNetworking, kind: "Sidecar", versions: istioVersions},
	{group: groupNetworking, kind: "Gateway", versions: istioVersions},
	{group: gatewayapi.Group, kind: "Gateway", versions: gatewayVersions, as: model.KindKubernetesGateway},
	{group: gatewayapi.Group, kind: "ListenerSet", versions: []string{"v1"}},
	{group: gatewayapi.Group, kind: "GatewayClass", versions: gatewayVersions, cluster: true},
	{group: gatewayapi.Group, kind: "HTTPRoute", versions: gatewayVersions},
	{group: gatewayapi.Group, kind: "GRPCRoute", versions: []string{"v1"}},
	{group: gatewayapi.Group, kind: "TLSRoute", versions: []string{"v1", "v1alpha3", "v1alpha2"}},
	{group: gatewayapi.Group, kind: "TCPRoute", versions: []string{"v1", "v1alpha2"}},
	{group: gatewayapi.Group, kind: "ReferenceGrant", versions: gatewayVersions},
	{group: gatewayapi.Group, kind: "BackendTLSPolicy", versions: []string{"v1", "v1alpha3"}},
	{group: groupNetworking, kind: "ProxyConfig", versions: []string{"v1beta1"}},
	{group: groupExtensions, kind: "WasmPlugin", versions: []string{"v1alpha1"}},
	{group: groupTelemetry, kind: "Telemetry", versions: telemetryVersions},
	{group: groupNetworking, kind: "EnvoyFilter", versions: []string{"v1alpha3"}},
	{group: groupSecurity, kind: "PeerAuthentication", versions: securityVersions},
	{group: groupSecurity, kind: "AuthorizationPolicy", versions: securityVersions},
	{group: groupSecurity, kind: "RequestAuthentication", versions: securityVersions},
}

var telemetryVersions = []string{"v1", "v1alpha1"}

// laterKinds are Istio's kinds, and Gateway API's, that have no effect yet.
var laterKinds = map[string][]string{
	groupNetworking:               {"WorkloadGroup"},
	groupTelemetry:                nil,
	groupExtensions:               {"TrafficExtension"},
	"install.istio.io":            {"IstioOperator"},
	"config.istio.io":             nil,
	gatewayapi.Group:              {"UDPRoute"},
	"inference.networking.k8s.io": nil,
}

// insteadOfKind is the advice for kinds that have no effect yet.
var insteadOfKind = map[string]string{
	"TrafficExtension": ", so what it checks or adds is missing; write a WasmPlugin, or for Lua an EnvoyFilter",
}

// coreKinds are the kinds of Kubernetes' core API that the mesh has no use for.
var coreKinds = []string{
	"Binding", "ComponentStatus", "Endpoints", "Event", "LimitRange",
	"PersistentVolume", "PersistentVolumeClaim", "PodTemplate", "ReplicationController",
	"ResourceQuota", "ServiceAccount",
}

// builtinGroups are Kubernetes' own API groups with their kinds; none: any kind.
var builtinGroups = map[string][]string{
	"apps":                         {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ControllerRevision"},
	"batch":                        {"Job", "CronJob"},
	"autoscaling":                  {"HorizontalPodAutoscaler", "Scale"},
	"policy":                       {"PodDisruptionBudget", "Eviction", "PodSecurityPolicy"},
	"extensions":                   {"Ingress", "Deployment", "DaemonSet", "ReplicaSet", "NetworkPolicy"},
	"networking.k8s.io":            nil,
	"rbac.authorization.k8s.io":    nil,
	"apiextensions.k8s.io":         nil,
	"admissionregistration.k8s.io": nil,
	"apiregistration.k8s.io":       nil,
	"authentication.k8s.io":        nil,
	"authorization.k8s.io":         nil,
	"certificates.k8s.io":          nil,
	"coordination.k8s.io":          nil,
	"events.k8s.io":                nil,
	"flowcontrol.apiserver.k8s.io": nil,
	"node.k8s.io":                  nil,
	"resource.k8s.io":              nil,
	"scheduling.k8s.io":            nil,
	"storage.k8s.io":               nil,
	"metrics.k8s.io":               nil,
	"kustomize.config.k8s.io":      nil,
}

// lookupKind finds what to do with an apiVersion and kind. The error advises what to write.
func lookupKind(apiVersion, kind string) (apiKind, error) {
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	for _, k := range readKinds {
		if k.group == group && k.kind == kind {
			if !slices.Contains(k.versions, version) {
				return k, fmt.Errorf("%q is not a version of %s; write %s", apiVersion, kind, k.apiVersions())
			}
			return k, nil
		}
	}
	if kinds, ok := laterKinds[group]; ok && (kinds == nil || slices.Contains(kinds, kind)) {
		return apiKind{group: group, kind: kind, use: useLater}, nil
	}
	if group == "" && slices.Contains(coreKinds, kind) {
		return apiKind{kind: kind, use: useNothing}, nil
	}
	if kinds, ok := builtinGroups[group]; ok && (kinds == nil || slices.Contains(kinds, kind)) {
		return apiKind{group: group, kind: kind, use: useNothing}, nil
	}
	return unknownKind(apiVersion, group, kind)
}

// apiVersions lists the spellings of a kind's apiVersion.
func (k apiKind) apiVersions() string {
	out := make([]string, 0, len(k.versions))
	for _, v := range k.versions {
		out = append(out, strings.TrimPrefix(k.group+"/"+v, "/"))
	}
	return strings.Join(out, ", ")
}

// unknownKind distinguishes a misspelling from a custom resource of another product, which is ignored: its group is a domain
// unlike any known one.
func unknownKind(apiVersion, group, kind string) (apiKind, error) {
	groups, kinds := knownNames(group)
	near := spelling.Nearest(group, groups)
	if kinds == nil && near == "" && strings.Contains(group, ".") && !strings.HasSuffix(group, "istio.io") {
		return apiKind{group: group, kind: kind, use: useNothing}, nil
	}
	for _, k := range readKinds {
		if k.kind == kind {
			return apiKind{}, fmt.Errorf("%q is not the apiVersion of a %s; write %s", apiVersion, kind, k.apiVersions())
		}
	}
	if kinds != nil {
		return apiKind{}, fmt.Errorf("%s has no kind %q%s", apiVersion, kind, spelling.DidYouMean(kind, kinds))
	}
	return apiKind{}, fmt.Errorf("unknown apiVersion %q%s", apiVersion, spelling.DidYouMean(group, groups))
}

// knownNames lists all groups, and the kinds of one of them (nil: not a known group).
func knownNames(group string) (groups, kinds []string) {
	for _, k := range readKinds {
		groups = append(groups, k.group)
		if k.group == group {
			kinds = append(kinds, k.kind)
		}
	}
	for g, list := range laterKinds {
		groups = append(groups, g)
		if g == group {
			kinds = append(kinds, list...)
		}
	}
	for g, list := range builtinGroups {
		groups = append(groups, g)
		if g == group {
			kinds = append(kinds, list...)
		}
	}
	if group == "" {
		kinds = append(kinds, coreKinds...)
	}
	return groups, kinds
}
