package gatewayapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// Known finds what references of the Gateway API name.
type Known struct {
	Service func(namespace, name string) *model.Service // nil: there is none
	Hosts   func(model.Host) []*model.Service           // the services of a host, also of wildcards
	// Grants are the ReferenceGrants of a namespace; nil: none are needed, as for routes that only sidecars use.
	Grants func(namespace string) []*model.ReferenceGrant
}

// Unresolved is a reference that does not lead to a Service. Reason is that of the condition ResolvedRefs.
type Unresolved struct{ Reason, Field, Text string }

// UnresolvedBackends returns the backends of a route that requests cannot be sent to. It is the only judgement: for
// statuses, and for findings of analysis.
func (r *RouteRef) UnresolvedBackends(route model.Key, known Known) []Unresolved {
	var out []Unresolved
	for i := range r.Backends {
		ref := &r.Backends[i]
		if reason, text := ref.unresolved(route, known); reason != "" {
			out = append(out, Unresolved{reason, ref.Field, text})
		}
	}
	return out
}

// Reasons of the condition ResolvedRefs.
const (
	reasonInvalidKind = "InvalidKind"
	reasonNotFound    = "BackendNotFound"
	// ReasonNotPermitted: a ReferenceGrant is missing.
	ReasonNotPermitted = "RefNotPermitted"
)

func (r *ObjectRef) unresolved(route model.Key, known Known) (reason, text string) {
	if r.IsHostname() {
		return r.unresolvedHost(known)
	}
	if !r.IsService() {
		return reasonInvalidKind, r.KindText() + ": use a Service"
	}
	if !r.granted(model.GrantFrom{Kind: string(route.Kind), Namespace: route.Namespace}, known) {
		return ReasonNotPermitted, fmt.Sprintf("not permitted: add a ReferenceGrant to namespace %s for %ss of %s", r.Namespace, route.Kind, route.Namespace)
	}
	switch s := known.Service(r.Namespace, r.Name); {
	case s == nil:
		return reasonNotFound, fmt.Sprintf("Service %s: not found in namespace %s", r.Name, r.Namespace)
	case s.ExternalName == "" && s.Port(r.Port) == nil:
		return reasonNotFound, fmt.Sprintf("Service %s: no port %d", r.Name, r.Port)
	}
	return "", ""
}

// granted reports whether objects of a kind and namespace may refer to the object.
func (r *ObjectRef) granted(from model.GrantFrom, known Known) bool {
	return known.Grants == nil || from.Namespace == r.Namespace || slices.ContainsFunc(known.Grants(r.Namespace), func(g *model.ReferenceGrant) bool {
		return g.Allows(from, model.GrantTo{Kind: r.Kind, Name: r.Name})
	})
}

func (r *ObjectRef) unresolvedHost(known Known) (reason, text string) {
	host := model.Host(strings.ToLower(r.Name))
	services := known.Hosts(host)
	switch {
	case len(services) == 0:
		return reasonNotFound, fmt.Sprintf("host %s: no Service or ServiceEntry", host)
	case !slices.ContainsFunc(services, func(s *model.Service) bool { return s.Port(r.Port) != nil }):
		return reasonNotFound, fmt.Sprintf("host %s: no port %d", host, r.Port)
	}
	return "", ""
}
