package inject

import "github.com/moonsail/moonsail/internal/model"

// Istio's labels.
const (
	labelInject            = "sidecar.istio.io/inject"
	labelTLSMode           = "security.istio.io/tlsMode"
	labelCanonicalName     = "service.istio.io/canonical-name"
	labelCanonicalRevision = "service.istio.io/canonical-revision"
	labelNetwork           = "topology.istio.io/network"
)

// Annotations of Istio and others.
const (
	annotationInject        = labelInject
	annotationStatus        = "sidecar.istio.io/status"
	annotationTemplates     = "inject.istio.io/templates"
	annotationOverrides     = "proxy.istio.io/overrides"
	annotationProxyConfig   = "proxy.istio.io/config"
	annotationImage         = "sidecar.istio.io/proxyImage"
	annotationImageType     = "sidecar.istio.io/proxyImageType"
	annotationCPU           = "sidecar.istio.io/proxyCPU"
	annotationCPULimit      = "sidecar.istio.io/proxyCPULimit"
	annotationMemory        = "sidecar.istio.io/proxyMemory"
	annotationMemoryLimit   = "sidecar.istio.io/proxyMemoryLimit"
	annotationNative        = "sidecar.istio.io/nativeSidecar"
	annotationAgentLogLevel = "sidecar.istio.io/agentLogLevel"
	annotationUserVolume    = "sidecar.istio.io/userVolume"
	annotationUserMount     = "sidecar.istio.io/userVolumeMount"
	annotationRewrite       = "sidecar.istio.io/rewriteAppHTTPProbers"
	annotationStatusPort    = "status.sidecar.istio.io/port"
	annotationMerge         = "prometheus.istio.io/merge-metrics"
	annotationInitialDelay  = "readiness.status.sidecar.istio.io/initialDelaySeconds"
	annotationPeriod        = "readiness.status.sidecar.istio.io/periodSeconds"
	annotationFailures      = "readiness.status.sidecar.istio.io/failureThreshold"
	annotationMode          = model.AnnotationInterception
	annotationContainer     = "kubectl.kubernetes.io/default-container"
	annotationLogs          = "kubectl.kubernetes.io/default-logs-container"
)

// annotationHoldUntilDrained, "false", removes the preStop hooks that hold the application's containers.
const annotationHoldUntilDrained = "moonsail.dev/hold-until-drained"

// ValidationContainer is the init container that fails until a CNI plugin has set the rules.
const ValidationContainer = "istio-validation"

// Containers, volumes and paths.
const (
	proxyContainer = "istio-proxy"
	initContainer  = "istio-init"

	// validationContainer takes the place of initContainer if a CNI plugin sets the rules.
	validationContainer = ValidationContainer

	// autoImage in a user's container with an injected container's name: the injected image.
	autoImage = "auto"

	envMetrics = "ISTIO_PROMETHEUS_ANNOTATIONS"
	// envEarlyEnd lets the agent end Envoy when no connection is left, before the end of the drain time.
	envEarlyEnd = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"

	binary = "moonsail" // in the image's PATH

	tokenAudience  = "istio-ca"
	rootCertConfig = "istio-ca-root-cert"
	workDir        = "/etc/istio/proxy"    // in memory
	dataDir        = "/var/lib/istio/data" // on the disk of the node
	podInfoDir     = "/etc/istio/pod"

	healthPort     = 15021
	prometheusPort = 15090
	defaultStatus  = 15020
	proxyID        = 1337
)
