package gatewaydeploy

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/proxyconfig"
)

// Who may create Gateways need not be allowed to create Pods. Labels and annotations decide what injection, the kubelet, node agents and
// clouds do with a Pod: its image, volumes, users and credentials. So a Gateway's go to its Service, as load balancers need them, and
// only those below go to the other objects. Names without a prefix belong to users (Kubernetes' rule for names), and are taken.

// safeAnnotations are annotations with a prefix that a Gateway may set on its Pods.
var safeAnnotations = map[string]bool{
	"cluster-autoscaler.kubernetes.io/safe-to-evict": true,
	"istio.io/rev":                                          true,
	annotationServiceType:                                   true,
	"prometheus.io/scrape":                                  true,
	"prometheus.istio.io/merge-metrics":                     true,
	annotationProxyConfig:                                   true, // its safe fields
	"readiness.status.sidecar.istio.io/failureThreshold":    true,
	"readiness.status.sidecar.istio.io/initialDelaySeconds": true,
	"readiness.status.sidecar.istio.io/periodSeconds":       true,
	"sidecar.istio.io/agentLogLevel":                        true,
	"sidecar.istio.io/componentLogLevel":                    true,
	"sidecar.istio.io/extraStatTags":                        true,
	"sidecar.istio.io/logLevel":                             true,
	"sidecar.istio.io/proxyCPU":                             true,
	"sidecar.istio.io/proxyCPULimit":                        true,
	"sidecar.istio.io/proxyMemory":                          true,
	"sidecar.istio.io/proxyMemoryLimit":                     true,
	"sidecar.istio.io/statsCompression":                     true,
	"sidecar.istio.io/statsHistogramBuckets":                true,
	"sidecar.istio.io/statsInclusionPrefixes":               true,
	"sidecar.istio.io/statsInclusionRegexps":                true,
	"sidecar.istio.io/statsInclusionSuffixes":               true,
}

// safeLabels are labels with a prefix that a Gateway may set on its Pods, and prefixGatewayAPI, whose labels are the controller's.
var safeLabels = map[string]bool{
	"app.kubernetes.io/component": true, "app.kubernetes.io/instance": true, "app.kubernetes.io/managed-by": true,
	"app.kubernetes.io/name": true, "app.kubernetes.io/part-of": true, "app.kubernetes.io/version": true,
	"helm.sh/chart": true, "istio.io/rev": true, labelManaged: true,
	"service.istio.io/canonical-name": true, "service.istio.io/canonical-revision": true, "topology.istio.io/network": true,
}

const annotationProxyConfig = "proxy.istio.io/config"

// safeProxyConfig are the fields of ProxyConfig that a Gateway may set. Others choose the image, files, environment variables, or the
// control plane.
var safeProxyConfig = []protoreflect.Name{
	"concurrency", "connection_settings", "drain_duration", "extra_stat_tags", "gateway_topology", "proxy_headers", "proxy_stats_matcher",
	"termination_drain_duration",
}

// safe returns the entries of a Gateway that its Pods may have, and adds the names of the others to left if they were meant for Pods:
// those of Istio, and all of infrastructure.
func safe(entries, infrastructure map[string]string, of map[string]bool, what string, left *[]string) map[string]string {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		if !strings.Contains(k, "/") || of[k] || strings.HasPrefix(k, prefixGatewayAPI) {
			out[k] = entries[k]
		} else if _, meant := infrastructure[k]; meant || strings.Contains(k, "istio.io/") {
			*left = append(*left, what+" "+k)
		}
	}
	return out
}

// safeConfig removes the fields of a ProxyConfig that a Gateway may not set, and adds their names to left. Text that is invalid stays:
// injection reports it.
func safeConfig(text string, left *[]string) string {
	config, err := proxyconfig.Parse(text, annotationProxyConfig)
	if err != nil {
		return text
	}
	out := proto.Clone(config).(*meshconfig.ProxyConfig)
	var names []string
	config.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(safeProxyConfig, f.Name()) {
			out.ProtoReflect().Clear(f)
			names = append(names, "annotation "+annotationProxyConfig+": "+f.JSONName())
		}
		return true
	})
	if len(names) == 0 {
		return text
	}
	slices.Sort(names)
	*left = append(*left, names...)
	document, err := protojson.Marshal(out)
	if err != nil {
		return "{}"
	}
	var compact bytes.Buffer // protojson varies white space
	if json.Compact(&compact, document) != nil {
		return "{}"
	}
	return compact.String()
}
