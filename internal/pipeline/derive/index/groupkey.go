package index

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// GroupKey identifies a proxy group. Proxies with equal keys receive the same configuration.
type GroupKey struct {
	Inbound      bool // the workload's own listeners; else what the proxies can call
	Type         model.ProxyType
	Namespace    string
	Sidecar      model.Key // that selects the proxies; zero: none
	Interception model.Interception
	Domain       string                 // of the cluster
	Labels       string                 // outbound: those that some object asks for; labels of inbound-only EnvoyFilters count only for proxies with clusters on demand; inbound, and of gateways: all
	OwnLabels    string                 // inbound, and of gateways: those of the workload itself, if topology adds or replaces some; noLabels: it has none
	Locality     model.Locality         // if some object asks for it
	Node         string                 // if some object asks for it
	IP           string                 // if listeners are bound to it (outbound: to a port of headless services), or inbound and of gateways if services reach ports by it that they do not reach by labels
	Ports        string                 // inbound, and of gateways: named ports, "name=number,..."
	Families     model.Families         // of the proxies' addresses
	Loopback     bool                   // the proxies have loopback addresses: the mesh runs on one machine
	Identity     bool                   // the proxies have certificates
	Account      string                 // outbound: the verified service account, if Secrets are for some accounts
	Version      string                 // of the proxies, if EnvoyFilters ask for it
	Metadata     string                 // of the proxies: the part that EnvoyFilters ask for, as a query
	Modules      bool                   // the proxies' agents fetch modules of plugins
	Files        bool                   // the proxies' agents read files with certificates
	Extensions   bool                   // only what such agents ask for
	AutoAddress  bool                   // outbound, and of names: applications learn the addresses that ServiceEntries get
	Uncounted    bool                   // the proxies keep no statistics of clusters' answers by code
	AnyWorker    bool                   // inbound: connections need not be balanced over the workers of the proxies
	Unprivileged bool                   // the proxies listen where applications connect, and cannot use ports below 1024
	HTTP10       bool                   // the proxies accept HTTP/1.0, by their own setting
	Names        bool                   // only what applications ask DNS for
	Topology     model.Topology         // of gateways: the hops before them, by their own settings
	Headers      model.ProxyHeaders     // that the proxies set, by their own settings
	Tracing      model.ProxyTracing     // of the proxies, by annotations of their Pods
	Connections  model.ProxyConnections // of the proxies' clients, by their own settings
	Asking       Asking                 // outbound: what the proxies ask for when applications call it for the first time
	ScopedRoutes bool                   // outbound: large route configurations are split into shards
	Sharded      ShardedRoutes          // outbound: route configurations that are split whatever their size, because the proxies have them so
	Cohort       int                    // outbound: 1 for proxies that need not have the shards that cohort 0 kept, else 0
}

// noLabels is GroupKey.OwnLabels of workloads without labels.
const noLabels = ","

// IsRouter reports whether the group is one of gateways. A gateway's DNS proxy has another group.
func (k *GroupKey) IsRouter() bool { return k.Type == model.ProxyRouter && !k.Names }

// Origins are the objects that group the proxies: their Sidecar.
func (k *GroupKey) Origins() *model.Origins {
	if k.Sidecar == (model.Key{}) {
		return nil
	}
	return model.OriginsOf(k.Sidecar)
}

// String names a group for people: "outbound/shop", followed by the properties that make it differ.
func (k GroupKey) String() string {
	if k.Names && k.Inbound {
		return "nothing"
	}
	parts := []string{k.direction(), k.Namespace}
	if k.Sidecar.Name != "" {
		parts = append(parts, "sidecar="+k.Sidecar.Namespace+"."+k.Sidecar.Name)
	}
	for _, p := range []string{k.Labels, k.OwnLabels, k.Locality.String(), k.Node, k.IP, k.Version, k.Metadata} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	for _, p := range k.traits() {
		if p.is {
			parts = append(parts, p.text)
		}
	}
	return strings.Join(parts, "/")
}

func (k GroupKey) direction() string {
	switch {
	case k.IsRouter():
		return "router"
	case k.Names:
		return "names"
	case k.Extensions:
		return "extensions"
	case k.Inbound:
		return "inbound"
	}
	return "outbound"
}

// trait is a property that most groups do not have.
type trait struct {
	is   bool
	text string
}

func (k GroupKey) traits() []trait {
	return []trait{
		{k.Families != model.IPv4, k.Families.String()},
		{k.Loopback, "loopback"},
		{k.Account != "", "account=" + k.Account},
		{k.Identity, "identity"},
		{k.Modules, "modules"},
		{k.Files, "files"},
		{k.AutoAddress, "auto-addresses"},
		{k.Uncounted, "uncounted"},
		{k.AnyWorker, "any-worker"},
		{k.Unprivileged, "unprivileged"},
		{k.HTTP10, "http/1.0"},
		{k.Headers.Set, k.Headers.String()},
		{k.Tracing != "", "tracing=" + string(k.Tracing)},
		{k.Topology.Set, k.Topology.String()},
		{k.Connections != "", "connections=" + string(k.Connections)},
		{k.OnDemand(), "on-demand"},
		{k.Asking == MayAskLater, "may-ask"},
		{k.ScopedRoutes, "scoped"},
		{k.Sharded != "", "sharded=" + strings.ReplaceAll(string(k.Sharded), " ", ",")},
		{k.Cohort > 0, fmt.Sprintf("cohort=%d", k.Cohort)},
	}
}

// OnDemand reports whether most clusters are on demand.
func (k *GroupKey) OnDemand() bool { return k.Asking == AsksForClusters }

// Asking is what proxies ask for when their applications call it for the first time.
type Asking string

// The values of Asking. Both values beside AsksNothing have the same connection managers and TCP proxies, which ask. A change
// between them ends connections only to listeners whose routes are split otherwise.
const (
	AsksNothing     Asking = ""
	MayAskLater     Asking = "later"    // all clusters are sent, but the mode may change
	AsksForClusters Asking = "clusters" // most clusters are on demand
)

// ShardedRoutes is a set of route configurations that can be part of a key: their names in order, separated by spaces. No
// name contains a space.
type ShardedRoutes string

// ShardedRoutesOf makes a set of names.
func ShardedRoutesOf(names ...string) ShardedRoutes {
	slices.Sort(names)
	return ShardedRoutes(strings.Join(slices.Compact(names), " "))
}

// List returns the names.
func (s ShardedRoutes) List() []string { return strings.Fields(string(s)) }

// Has reports whether a route configuration is in the set.
func (s ShardedRoutes) Has(name string) bool { return s != "" && slices.Contains(s.List(), name) }

// Union is the set of names that are in either set.
func (s ShardedRoutes) Union(o ShardedRoutes) ShardedRoutes {
	if s == o || o == "" {
		return s
	}
	return ShardedRoutesOf(append(s.List(), o.List()...)...)
}

// Asking adds the listener that makes Envoy ask for scopes, which exists if any route configuration is sharded.
func (s ShardedRoutes) Asking() ShardedRoutes { return s.Union(routeshard.Listener) }

// Covers reports whether the set contains another set.
func (s ShardedRoutes) Covers(o ShardedRoutes) bool {
	return s == o || !slices.ContainsFunc(o.List(), func(name string) bool { return !s.Has(name) })
}
