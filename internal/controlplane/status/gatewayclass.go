package status

import "github.com/moonsail/moonsail/internal/config/gatewayapi"

// supportedFeatures are the names of the Gateway API's conformance tests, in order.
var supportedFeatures = []string{
	"BackendTLSPolicy",
	"BackendTLSPolicySANValidation",
	"GRPCRoute",
	"GRPCRouteNamedRouteRule",
	"Gateway",
	"GatewayAddressEmpty",
	"GatewayBackendClientCertificate",
	"GatewayFrontendClientCertificateValidation",
	"GatewayFrontendClientCertificateValidationInsecureFallback",
	"GatewayHTTPListenerIsolation",
	"GatewayHTTPSListenerDetectMisdirectedRequests",
	"GatewayPort8080",
	"HTTPRoute",
	"HTTPRoute303RedirectStatusCode",
	"HTTPRoute307RedirectStatusCode",
	"HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C",
	"HTTPRouteBackendProtocolWebSocket",
	"HTTPRouteBackendRequestHeaderModification",
	"HTTPRouteBackendTimeout",
	"HTTPRouteCORS",
	"HTTPRouteDestinationPortMatching",
	"HTTPRouteHostRewrite",
	"HTTPRouteMethodMatching",
	"HTTPRouteNamedRouteRule",
	"HTTPRouteParentRefPort",
	"HTTPRoutePathRedirect",
	"HTTPRoutePathRewrite",
	"HTTPRoutePortRedirect",
	"HTTPRouteQueryParamMatching",
	"HTTPRouteRequestMirror",
	"HTTPRouteRequestMultipleMirrors",
	"HTTPRouteRequestPercentageMirror",
	"HTTPRouteRequestTimeout",
	"HTTPRouteResponseHeaderModification",
	"HTTPRouteSchemeRedirect",
	"ListenerSet",
	"ReferenceGrant",
	"TCPRoute",
	"TLSRoute",
	"TLSRouteModeMixed",
	"TLSRouteModeTerminate",
}

// class judges a GatewayClass. It does not list features of Istio's classes: Istio's control plane lists
// others, and the two would overwrite each other forever.
func class(o gatewayObject) *judgement {
	out := &judgement{generation: o.generation, conditions: []condition{{typeAccepted, true, "Accepted", ""}}}
	if !o.Class.Counts {
		out.conditions[0] = condition{typeAccepted, false, "Unsupported", "Gateways of this class have no effect: use moonsail, of controller " +
			gatewayapi.ControllerMoonsail + ", or istio, of controller " + gatewayapi.ControllerIstio}
	} else if o.Class.Controller == gatewayapi.ControllerMoonsail {
		out.features = supportedFeatures
	}
	return out
}

func featureList(names []string) []any {
	out := make([]any, 0, len(names))
	for _, name := range names {
		out = append(out, map[string]any{"name": name})
	}
	return out
}
