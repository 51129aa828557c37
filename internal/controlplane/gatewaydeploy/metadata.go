package gatewaydeploy

import (
	"maps"
	"slices"
	"strings"

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
var safeProxyConfig = []string{
	"concurrency", "connectionSettings", "drainDuration", "extraStatTags", "gatewayTopology", "proxyHeaders", "proxyStatsMatcher",
	"terminationDrainDuration",
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
	kept, others, err := proxyconfig.Keep(text, annotationProxyConfig, safeProxyConfig)
	if err != nil {
		return text
	}
	for _, name := range others {
		*left = append(*left, "annotation "+annotationProxyConfig+": "+name)
	}
	return kept
}
