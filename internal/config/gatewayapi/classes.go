package gatewayapi

import (
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ControllerOf returns the controller of the mesh's GatewayClass of a name; empty: the mesh has no such class.
func ControllerOf(class string) string { return gatewayClasses[gatewayv1.ObjectName(class)] }

// Classes returns the names of the mesh's GatewayClasses, sorted.
func Classes() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(gatewayClasses)) {
		out = append(out, string(name))
	}
	return out
}
