package security

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
)

// Envoy decides about a connection when the first byte of the client arrives. By then a server that sends first has
// sent something to a client that will be refused. If policies refuse every connection to a port, Envoy does not
// connect to the server at all. This file finds that out.

// certainty is whether a rule matches, as far as it is known without a connection.
type certainty int8

const (
	never certainty = iota - 1
	perhaps
	always
)

// RefuseAll reports whether the decisions refuse every connection to a port; 0: an unknown port.
func (d Decisions) RefuseAll(port uint32) bool {
	for _, s := range d {
		switch holds := anyPolicy(s.rules, port); {
		case s.rules == nil:
		case s.rules.GetAction() == rbacv3.RBAC_DENY && holds == always:
			return true
		case s.rules.GetAction() == rbacv3.RBAC_ALLOW && holds == never:
			return true
		}
	}
	return false
}

func anyPolicy(rules *rbacv3.RBAC, port uint32) certainty {
	out := never
	for _, p := range rules.GetPolicies() {
		called := mostOf(p.GetPermissions(), func(p *rbacv3.Permission) certainty { return ofPermission(p, port) })
		out = max(out, min(called, mostOf(p.GetPrincipals(), ofPrincipal)))
	}
	return out
}

func mostOf[T any](list []T, of func(T) certainty) certainty {
	out := never
	for _, e := range list {
		out = max(out, of(e))
	}
	return out
}

func leastOf[T any](list []T, of func(T) certainty) certainty {
	out := always
	for _, e := range list {
		out = min(out, of(e))
	}
	return out
}

func ofPermission(p *rbacv3.Permission, port uint32) certainty {
	of := func(p *rbacv3.Permission) certainty { return ofPermission(p, port) }
	switch r := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return always
	case *rbacv3.Permission_AndRules:
		return leastOf(r.AndRules.GetRules(), of)
	case *rbacv3.Permission_OrRules:
		return mostOf(r.OrRules.GetRules(), of)
	case *rbacv3.Permission_NotRule:
		return -of(r.NotRule)
	case *rbacv3.Permission_DestinationPort:
		switch {
		case port == 0:
			return perhaps
		case r.DestinationPort == port:
			return always
		}
		return never
	}
	return perhaps
}

func ofPrincipal(p *rbacv3.Principal) certainty {
	switch id := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return always
	case *rbacv3.Principal_AndIds:
		return leastOf(id.AndIds.GetIds(), ofPrincipal)
	case *rbacv3.Principal_OrIds:
		return mostOf(id.OrIds.GetIds(), ofPrincipal)
	case *rbacv3.Principal_NotId:
		return -ofPrincipal(id.NotId)
	}
	return perhaps
}
