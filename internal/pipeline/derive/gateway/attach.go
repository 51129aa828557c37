package gateway

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// An AttachReason is why a route attaches to a listener of a Gateway, or why not. Reasons are ordered: of several listeners,
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

// An Attachment is the decision whether a route attaches to a server of a Gateway.
type Attachment struct {
	Reason AttachReason
	Hosts  []model.Host // of the route at the server: the narrower of each pair that overlaps; empty unless Attached
}

// Attach decides whether a route attaches to a server, which is a listener of the Gateway API or a server of Istio's
// Gateway. names are those by which routes name the server (model.Gateway.ServerNames). Only the route's key, Gateways
// and Hosts count. The server has admitted the namespaces that it selects (model.GatewayServer.Admit).
//
// Attach and attachBound, its second half for routes whose Gateway is known, are the only judgement: for listeners and
// virtual hosts of gateways, and for the statuses of routes and Gateways. isolation.go then decides which of several
// listeners gets a request.
func Attach(names []string, server *model.GatewayServer, route *model.VirtualService) Attachment {
	if !slices.ContainsFunc(names, func(g string) bool { return slices.Contains(route.Gateways, g) }) {
		return Attachment{Reason: NoMatchingParent}
	}
	return attachBound(server, route)
}

// attachBound is Attach for a route that is known to name the server.
func attachBound(server *model.GatewayServer, route *model.VirtualService) Attachment {
	allowed := server.HostsFor(route.Namespace)
	if !server.Takes(route.Kind) || len(allowed) == 0 {
		return Attachment{Reason: NotAllowedByListeners}
	}
	hosts := model.CommonHosts(allowed, route.Hosts)
	if len(hosts) == 0 {
		return Attachment{Reason: NoMatchingListenerHostname}
	}
	return Attachment{Reason: Attached, Hosts: hosts}
}
