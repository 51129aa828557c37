package gatewayapi

import (
	"os"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// meshFeatures are the features of the mesh profiles that Moonsail supports. MeshClusterIPMatching is not among them: as in
// Istio, a sidecar selects a Service by the request's host.
var meshFeatures = []features.FeatureName{
	features.SupportMesh, features.SupportHTTPRoute, features.SupportGRPCRoute,
	features.SupportMeshConsumerRoute, features.SupportMeshHTTPRouteRewritePath, features.SupportMeshHTTPRouteSchemeRedirect,
	features.SupportMeshHTTPRouteRedirectPort, features.SupportMeshHTTPRouteRedirectPath,
	features.SupportMeshHTTPRouteBackendRequestHeaderModification, features.SupportMeshHTTPRouteQueryParamMatching,
	features.SupportMeshHTTPRouteNamedRouteRule,
	features.SupportHTTPRouteResponseHeaderModification, features.SupportHTTPRouteParentRefPort,
	features.SupportHTTPRoute303RedirectStatusCode, features.SupportHTTPRoute307RedirectStatusCode,
	features.SupportHTTPRoute308RedirectStatusCode,
}

// TestMeshConformance runs the mesh profiles in the cluster of KUBECONFIG, which has Moonsail and the image of the suite's
// servers.
func TestMeshConformance(t *testing.T) {
	if os.Getenv("MOONSAIL_CONFORMANCE_MESH") == "" {
		t.Skip("the script run-mesh starts it: make conformance-mesh")
	}
	o := optionsFor(t, &cluster{dir: os.Getenv("CONFORMANCE_DIR")})
	o.GatewayClassName, o.SupportedFeatures = "", meshFeatures
	o.NamespaceLabels = map[string]string{"istio-injection": "enabled"}
	o.ConformanceProfiles = []suite.ConformanceProfileName{suite.MeshHTTPConformanceProfileName, suite.MeshGRPCConformanceProfileName}
	conformance.RunConformanceWithOptions(t, o)
}
