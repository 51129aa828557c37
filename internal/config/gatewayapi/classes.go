package gatewayapi

import (
	"cmp"
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ControllerOf returns the controller of the mesh's GatewayClass of a name; empty: the mesh has no such class.
func ControllerOf(class string) string { return gatewayClasses[gatewayv1.ObjectName(class)] }

// Deployable reports whether routers may be deployed for a Gateway with addresses of these types. Others run the routers of a
// Gateway with the name of a Service, or with several addresses, as in Istio.
func Deployable(types ...string) bool {
	ip := string(gatewayv1.IPAddressType)
	return len(types) == 0 || len(types) == 1 && cmp.Or(types[0], ip) == ip
}

// Classes returns the names of the mesh's GatewayClasses, sorted.
func Classes() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(gatewayClasses)) {
		out = append(out, string(name))
	}
	return out
}
