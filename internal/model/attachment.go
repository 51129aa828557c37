package model

import (
	"fmt"
	"slices"
)

// An AttachReason is why a route attaches to a server of a Gateway, or why not. Reasons are ordered: of several servers,
// the one with the greatest reason came closest to taking the route.
type AttachReason uint8

// The reasons. Their texts are the Gateway API's reasons of the condition Accepted.
const (
	NoMatchingParent           AttachReason = iota // the route names another Gateway, listener or port
	NotAllowedByListeners                          // the listener accepts no routes of the kind or namespace
	NoMatchingListenerHostname                     // the route has no hostname of the listener
	Attached
)

// String returns the reason by its name in the Gateway API.
func (r AttachReason) String() string {
	return [...]string{"NoMatchingParent", "NotAllowedByListeners", "NoMatchingListenerHostname", "Accepted"}[r]
}

// Advice returns the message about a route that no listener of a parent, a Gateway or ListenerSet, takes. The reason is that
// of the listener that came closest.
func (r AttachReason) Advice(parent string, route Key) string {
	switch r {
	case NotAllowedByListeners:
		return fmt.Sprintf("no listener takes routes of kind %s from namespace %s: change allowedRoutes of the %s", route.Kind, route.Namespace, parent)
	case NoMatchingListenerHostname:
		return "no hostname of the route matches a listener: change hostnames, or the listener's hostname"
	}
	return fmt.Sprintf("the %s has no such listener: correct sectionName and port of the parentRef", parent)
}

// An Attachment is the decision whether a route attaches to a server of a Gateway.
type Attachment struct {
	Reason AttachReason
	Hosts  []Host // of the route at the server: the narrower of each pair that overlaps; empty unless Attached
}

// Attach decides whether a route attaches to a server of the Gateway, which is a listener of the Gateway API or a server of
// Istio's Gateway. Only the route's key, Gateways and Hosts count. The server has admitted the namespaces that it selects
// (GatewayServer.Admit).
//
// Attach and AttachBound, its second half for routes whose Gateway is known, are the only judgement: for listeners and
// virtual hosts of gateways, for statuses of routes and Gateways, and for findings of analysis.
func (g *Gateway) Attach(server *GatewayServer, route *VirtualService) Attachment {
	if !route.BoundTo(g.ServerNames(server)) {
		return Attachment{Reason: NoMatchingParent}
	}
	return server.AttachBound(route)
}

// AttachAny decides for all servers of the Gateway. It returns those that take the route, and the reason of the server
// that came closest. admits reports whether a server's selector of namespaces selects the route's namespace.
func (g *Gateway) AttachAny(route *VirtualService, admits func(*LabelSelector) bool) (takes []*GatewayServer, reason AttachReason) {
	for i := range g.Servers {
		server := &g.Servers[i]
		if server.Namespaces != nil && admits(server.Namespaces) {
			server = server.Admit([]string{route.Namespace})
		}
		a := g.Attach(server, route)
		if reason = max(reason, a.Reason); a.Reason == Attached {
			takes = append(takes, server)
		}
	}
	return takes, reason
}

// AttachBound is Attach for a route that is known to name the server.
func (s *GatewayServer) AttachBound(route *VirtualService) Attachment {
	allowed := s.HostsFor(route.Namespace)
	if !s.Takes(route.Kind) || len(allowed) == 0 {
		return Attachment{Reason: NotAllowedByListeners}
	}
	hosts := CommonHosts(allowed, route.Hosts)
	if len(hosts) == 0 {
		return Attachment{Reason: NoMatchingListenerHostname}
	}
	return Attachment{Reason: Attached, Hosts: hosts}
}

// HostnameFor returns the most specific host of the route that matches a host; empty: none does.
func (v *VirtualService) HostnameFor(h Host) Host {
	var out Host
	for _, o := range v.Hosts {
		if o.Matches(h) && (out == "" || o.CompareSpecificity(out) < 0) {
			out = o
		}
	}
	return out
}

// AttachSet decides whether a ListenerSet belongs to the Gateway. admits reports whether a selector of namespaces selects
// the set's namespace. It is the only judgement.
func (g *Gateway) AttachSet(set *Gateway, admits func(*LabelSelector) bool) bool {
	from := g.ListenerSets
	switch {
	case set.Parent != g.Key || from == nil:
		return false
	case from.Namespace != "":
		return from.Namespace == "*" || from.Namespace == set.Namespace
	}
	return from.Selector != nil && admits(from.Selector)
}

// Displaced returns the listeners without effect of a Gateway and its ListenerSets, served or reserved: an owner that comes
// first has one that takes their place. owners are the Gateway, then its ListenerSets, the oldest first. Conflicts inside one
// owner are decided already.
//
// It is the only judgement: for listeners of gateways, for statuses, and for findings of analysis.
func Displaced(owners []*Gateway) map[*GatewayServer]ServerConflict {
	var out map[*GatewayServer]ServerConflict
	var placed []*GatewayServer
	for _, g := range owners {
		before := placed
		place := func(s *GatewayServer) {
			if conflict := s.conflictWith(before); conflict.Reason == "" {
				placed = append(placed, s)
			} else if out == nil {
				out = map[*GatewayServer]ServerConflict{s: conflict}
			} else {
				out[s] = conflict
			}
		}
		for i := range g.Servers {
			place(&g.Servers[i])
		}
		for i := range g.Reserved {
			place(&g.Reserved[i])
		}
	}
	return out
}

// conflictWith returns the first conflict of a listener with others of its port number. The text leaves out to which
// ListenerSet the other belongs, which its author need not know.
func (s *GatewayServer) conflictWith(placed []*GatewayServer) ServerConflict {
	for _, o := range placed {
		if o.Port.Number != s.Port.Number {
			continue
		}
		if conflict := o.Conflict(s); conflict.Reason != "" {
			conflict.Text = fmt.Sprintf("another listener of the Gateway has port %d too, and %s", s.Port.Number, conflict.Text)
			return conflict
		}
	}
	return ServerConflict{}
}

// BoundTo reports whether the route names one of the servers' names (Gateway.ServerNames).
func (v *VirtualService) BoundTo(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(v.Gateways, name) })
}

// A ServerConflict is why one of two servers cannot be served at an address and port. The zero value: both can.
type ServerConflict struct {
	Reason ConflictReason
	Text   string // for messages, about both servers
}

// A ConflictReason is the Gateway API's reason of the condition Conflicted. It is empty without a conflict.
type ConflictReason string

// The reasons.
const (
	ProtocolConflict ConflictReason = "ProtocolConflict" // nothing separates the connections of the two
	HostnameConflict ConflictReason = "HostnameConflict" // both are for one host
)

// Conflict decides whether two servers can share an address and port. TLS servers can, for different hosts. Plain HTTP
// servers can, but listeners of the Gateway API with one port number must have different hosts.
//
// It is the only judgement: for listeners of gateways, for statuses, and for findings of analysis. The server that comes
// first is served: among Gateways the older, in one Gateway the one that is listed first.
func (s *GatewayServer) Conflict(o *GatewayServer) ServerConflict {
	switch {
	case (s.TLS == nil) != (o.TLS == nil):
		return ServerConflict{ProtocolConflict, "one of the two is TLS, the other is not"}
	case s.TLS == nil && (!s.IsHTTP() || !o.IsHTTP()):
		return ServerConflict{ProtocolConflict, "their connections cannot be distinguished"}
	case s.TLS == nil && !(s.IsListener() && o.IsListener() && s.Port.Number == o.Port.Number):
		return ServerConflict{}
	}
	for _, a := range s.Hosts {
		for _, b := range o.Hosts {
			if a.Host == b.Host {
				return ServerConflict{HostnameConflict, fmt.Sprintf("both are for %s", a.Host)}
			}
		}
	}
	return ServerConflict{}
}

// IsListener reports whether the server is a listener of the Gateway API.
func (s *GatewayServer) IsListener() bool { return s.Routes != nil }

// IsServed reports whether proxies with or without the mesh's certificates can serve the server: Envoy would wait for
// certificates that it does not get. A server that is not served conflicts with no other.
func (s *GatewayServer) IsServed(meshCertificates bool) bool {
	switch {
	case s.TLS == nil:
		return true
	case s.TLS.Mode == ServerIstioMutual || s.TLS.MeshCertificate:
		return meshCertificates
	}
	return s.TLS.Mode != ServerAutoPassthrough
}
