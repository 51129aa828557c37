package gatewayapi

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// OtherClass reports whether a class is one of a user with Moonsail's or Istio's controller. Istio serves Gateways of such classes,
// Moonsail does not. Names that begin with istio- are Istio's own.
func OtherClass(o *gatewayv1.GatewayClass) bool {
	ours := o.Spec.ControllerName == ControllerIstio || o.Spec.ControllerName == ControllerMoonsail
	return ours && ControllerOf(o.Name) != string(o.Spec.ControllerName) && !strings.HasPrefix(o.Name, "istio-")
}

// GatewayClass reports a class whose Gateways are not served. Classes have no part in the model.
func GatewayClass(o *gatewayv1.GatewayClass) problem.List {
	c := problem.Report{Object: model.Key{Kind: model.KindGatewayClass, Name: o.Name}}
	if OtherClass(o) {
		c.Warnf(code.NoEffect, problem.Path("spec").Field("controllerName"), "Gateways of class %s are not served, although Istio serves them: set their gatewayClassName to istio", o.Name)
	}
	return c.Problems
}

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
