// Package model holds the mesh's own types: what Kubernetes, Istio and file
// sources are decoded into, and what every later stage reads.
//
// It is pure data. It imports nothing of ours, knows neither Envoy nor
// Kubernetes clients, and starts no goroutines.
//
// Invariant: an object is immutable once the store has it. A change makes a new
// object. Slices and maps inside are therefore shared freely.
package model

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"
)

// Kind is the Kubernetes kind of a source object.
type Kind string

// The kinds that the mesh reads.
const (
	KindNamespace          Kind = "Namespace"
	KindService            Kind = "Service"
	KindEndpointSlice      Kind = "EndpointSlice"
	KindPod                Kind = "Pod"
	KindNode               Kind = "Node"
	KindMeshConfig         Kind = "ConfigMap" // the one that has the mesh's configuration
	KindServiceEntry       Kind = "ServiceEntry"
	KindWorkloadEntry      Kind = "WorkloadEntry"
	KindVirtualService     Kind = "VirtualService"
	KindDestinationRule    Kind = "DestinationRule"
	KindSidecar            Kind = "Sidecar"
	KindPeerAuthentication Kind = "PeerAuthentication"
	KindTelemetry          Kind = "Telemetry"
	KindDrainNotice        Kind = "Departure" // see Departure
)

// Kinds lists every kind in a fixed order: the order of pages and of reports.
var Kinds = []Kind{
	KindNamespace, KindService, KindEndpointSlice, KindPod, KindNode, KindMeshConfig, KindServiceEntry,
	KindWorkloadEntry, KindVirtualService, KindDestinationRule, KindSidecar, KindTelemetry, KindDrainNotice,
	KindPeerAuthentication, KindAuthorizationPolicy, KindRequestAuthentication, KindKeySet,
	KindEnvoyFilter, KindSecret, KindProxyConfig, KindWasmPlugin, KindGateway,
	KindKubernetesGateway, KindHTTPRoute, KindReferenceGrant, KindGRPCRoute, KindTLSRoute, KindTCPRoute,
	KindBackendTLSPolicy,
}

// Key names one source object.
type Key struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is "Kind/namespace/name", as in logs and error messages.
func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%s/%s", k.Kind, k.Name)
	}
	return fmt.Sprintf("%s/%s/%s", k.Kind, k.Namespace, k.Name)
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		strings.Compare(string(k.Kind), string(o.Kind)),
		strings.Compare(k.Namespace, o.Namespace),
		strings.Compare(k.Name, o.Name),
	)
}

// Meta is what all source objects have.
type Meta struct {
	Key
	Labels          map[string]string
	Annotations     map[string]string
	ResourceVersion string    // opaque; a content hash for files
	Created         time.Time // older objects win conflicts; zero for files
	Origin          string    // where a person finds it: "file.yaml:12" or "kubernetes"
}

// configNames are the kinds that the metadata of resources names, as Istio's "istio.config" calls them.
var configNames = map[Kind]string{
	KindVirtualService: "virtual-service", KindHTTPRoute: "http-route", KindGRPCRoute: "grpc-route", KindDestinationRule: "destination-rule",
	KindTLSRoute: "tls-route", KindTCPRoute: "tcp-route", KindBackendTLSPolicy: "backend-tls-policy",
}

// ConfigName is how metadata of resources calls the kind; empty: it has none.
func (k Kind) ConfigName() string { return configNames[k] }

// KindOfConfig is the kind that metadata of resources calls by a name; empty: there is none.
func KindOfConfig(name string) Kind {
	for k, n := range configNames {
		if n == name {
			return k
		}
	}
	return ""
}

// Object is a source object. The set of implementations is closed: one for each Kind.
type Object interface {
	// Metadata is never nil.
	Metadata() *Meta
}

// Metadata implements Object for every type that embeds Meta.
func (m *Meta) Metadata() *Meta { return m }

// CompareAge puts the object first that wins where two claim the same thing: the earlier
// created one, then the smaller key.
func CompareAge(a, b Object) int {
	ma, mb := a.Metadata(), b.Metadata()
	return cmp.Or(ma.Created.Compare(mb.Created), ma.Key.Compare(mb.Key))
}

// Older tells whether a wins over b; see CompareAge.
func Older(a, b Object) bool { return CompareAge(a, b) < 0 }

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Meta
	Distribution Distribution // of its services that say nothing
}

// LabelNamespace is the label that every namespace has, with its name.
const LabelNamespace = "kubernetes.io/metadata.name"

// ImpliedLabels are those of a namespace that has no object of its own.
func ImpliedLabels(namespace string) map[string]string {
	return map[string]string{LabelNamespace: namespace}
}

// Revision numbers the batches of changes that went into the store. It only grows
// while a control plane lives; two control planes' revisions cannot be compared.
type Revision uint64

// Origins is the set of objects that a piece of configuration was made from. It is immutable, and
// nil is the empty set. Equal sets of one process share their memory.
//
// An origin is an object whose content went into the result, or whose presence decided it. An
// object that was looked for and not found is none. The mesh's configuration, namespaces, nodes
// and Pods are never among them: they shape everything, or are too many.
type Origins struct {
	keys []Key // in the order of Key.Compare, each once
}

// OriginsOf makes a set of keys, in any order. It keeps no reference to the list.
func OriginsOf(keys ...Key) *Origins {
	switch len(keys) {
	case 0:
		return nil
	case 1:
		return originSets.intern(keys)
	}
	return originSets.intern(sortedKeys(keys))
}

// sortedKeys is keys itself where they are in order, each once.
func sortedKeys(keys []Key) []Key {
	for i := 1; i < len(keys); i++ {
		if keys[i-1].Compare(keys[i]) >= 0 {
			out := slices.Clone(keys)
			slices.SortFunc(out, Key.Compare)
			return slices.Compact(out)
		}
	}
	return keys
}

// Keys are the members in the order of Key.Compare. Callers must not change the list.
func (o *Origins) Keys() []Key {
	if o == nil {
		return nil
	}
	return o.keys
}

// Has reports whether an object is a member.
func (o *Origins) Has(k Key) bool {
	_, found := slices.BinarySearchFunc(o.Keys(), k, Key.Compare)
	return found
}

// Len is the number of members.
func (o *Origins) Len() int { return len(o.Keys()) }

// Union is the set of the members of both.
func (o *Origins) Union(p *Origins) *Origins {
	switch {
	case o == p || p == nil:
		return o
	case o == nil:
		return p
	}
	return OriginsOf(slices.Concat(o.keys, p.keys)...)
}

// Intersect is the set of the members that both have.
func (o *Origins) Intersect(p *Origins) *Origins {
	if o == p {
		return o
	}
	return OriginsOf(slices.DeleteFunc(slices.Clone(o.Keys()), func(k Key) bool { return !p.Has(k) })...)
}

// Equal reports whether two sets have the same members.
func (o *Origins) Equal(p *Origins) bool { return o == p || slices.Equal(o.Keys(), p.Keys()) }

// originSets are the sets in use. It holds them weakly, as package unique does.
var originSets = &originInterner{known: map[uint64]weak.Pointer[Origins]{}}

type originInterner struct {
	mu    sync.Mutex // guards what follows
	known map[uint64]weak.Pointer[Origins]
	puts  int // since the last sweep
}

var originSeed = maphash.MakeSeed()

// intern gives the one set of keys that are in order. Two sets of one hash, which do not happen,
// would only not be shared.
func (in *originInterner) intern(keys []Key) *Origins {
	var h maphash.Hash
	h.SetSeed(originSeed)
	for i := range keys {
		maphash.WriteComparable(&h, keys[i])
	}
	sum := h.Sum64()
	in.mu.Lock()
	defer in.mu.Unlock()
	if old := in.known[sum].Value(); old != nil && slices.Equal(old.keys, keys) {
		return old
	}
	o := &Origins{keys: slices.Clone(keys)}
	in.known[sum] = weak.Make(o)
	if in.puts++; in.puts > len(in.known)/2+1024 {
		in.sweep()
	}
	return o
}

// sweep drops the sets that nothing uses any more.
func (in *originInterner) sweep() {
	in.puts = 0
	for sum, p := range in.known {
		if p.Value() == nil {
			delete(in.known, sum)
		}
	}
}

// OriginList collects origins in the order in which they are read. The zero value is empty.
type OriginList struct {
	keys  []Key
	floor int // the last mark: what was added before may have to be added again
}

// recentOrigins is how many members Add looks through for one that is there already. A unit reads
// one object many times in a row; a member that is there twice costs no more than its place.
const recentOrigins = 8

// Add adds an object.
func (l *OriginList) Add(k Key) {
	for i := len(l.keys) - 1; i >= max(l.floor, len(l.keys)-recentOrigins); i-- {
		if l.keys[i] == k {
			return
		}
	}
	l.keys = append(l.keys, k)
}

// AddAll adds the members of a set.
func (l *OriginList) AddAll(o *Origins) {
	for _, k := range o.Keys() {
		l.Add(k)
	}
}

// Mark begins a part of the list. Parts may be nested.
func (l *OriginList) Mark() int {
	l.floor = len(l.keys)
	return l.floor
}

// Drop drops what was added since a mark.
func (l *OriginList) Drop(mark int) {
	l.keys, l.floor = l.keys[:mark], min(l.floor, mark)
}

// Since is what was added since a mark; since 0 it is everything. The list stays as it is.
func (l *OriginList) Since(mark int) *Origins { return OriginsOf(l.keys[mark:]...) }

// IsOrigin reports whether the object is recorded as an origin of what is made from it.
func (k Key) IsOrigin() bool {
	return !k.IsMeshConfig() && !slices.Contains(unrecorded, k.Kind)
}

var unrecorded = []Kind{KindPod, KindNode, KindNamespace, KindDrainNotice, KindKeySet}

// LabelRevision names the control plane that an object of Istio's kinds, or of the Gateway API's, is for, and the one that
// injects the Pods of a namespace. An object without it is for all.
const LabelRevision = "istio.io/rev"

// DefaultRevision is that of a control plane which nobody gave another, as istiod's.
const DefaultRevision = "default"

// Selecting is an object about workloads: those of its namespace or, if it is in the root
// namespace, those of all. Which ones, Selectors tells: an object may name Gateways in place of labels.
type Selecting interface {
	Object
	// SelectorLabels are the labels that a workload must have; empty: all are meant.
	SelectorLabels() map[string]string
	// ShapesOutbound tells whether the object counts for what workloads call, too, and not
	// only for what they are called by. Then its labels tell outbound scopes apart.
	ShapesOutbound() bool
}

// IsFor reports whether an object is for workloads of a namespace with some labels. root is the namespace
// of objects that are for all namespaces. It does not hold for Gateways, which select routers of all.
func IsFor(o Selecting, namespace string, labels map[string]string, root string) bool {
	ns := o.Metadata().Namespace
	return (ns == namespace || ns == root && !IsTargeted(o)) && Selects(o, labels)
}

// SortPolicies puts objects that are for one workload into the order in which they count: those of the
// root namespace first, in each namespace the oldest first.
func SortPolicies[T Selecting](list []T, root string) {
	slices.SortFunc(list, func(a, b T) int {
		if x, y := a.Metadata().Namespace == root, b.Metadata().Namespace == root; x != y {
			if x {
				return -1
			}
			return 1
		}
		return CompareAge(a, b)
	})
}

// SameAudience tells whether two forms of an object concern the same proxies.
func SameAudience(a, b Object) bool {
	switch a := a.(type) {
	case *Sidecar:
		b, ok := b.(*Sidecar)
		return ok && maps.Equal(a.Selector, b.Selector)
	case *PeerAuthentication:
		b, ok := b.(*PeerAuthentication)
		return ok && maps.Equal(a.Selector, b.Selector) && a.Disables() == b.Disables() // callers learn of that
	case Selecting:
		b, ok := b.(Selecting)
		return ok && IsTargeted(a) == IsTargeted(b) && slices.EqualFunc(Selectors(a), Selectors(b), maps.Equal)
	}
	return true
}

// LabelGatewayName is what routers of a Gateway of the Gateway API have, with its name.
const LabelGatewayName = "gateway.networking.k8s.io/gateway-name"

// Targets are what a policy is for that names objects (targetRefs) in place of a selector: routers
// of Gateways of the Gateway API in its own namespace, also where that is the root namespace.
type Targets struct {
	Targeted bool
	Gateways []string // names; empty for a policy that names only what there is not, so that it has no effect
}

// TargetGateways implements Targeting.
func (t *Targets) TargetGateways() (names []string, targeted bool) { return t.Gateways, t.Targeted }

// Targeting is an object that may name Gateways.
type Targeting interface {
	TargetGateways() (names []string, targeted bool)
}

// IsTargeted tells whether an object names what it is for.
func IsTargeted(o Selecting) bool {
	t, ok := o.(Targeting)
	if !ok {
		return false
	}
	_, targeted := t.TargetGateways()
	return targeted
}

// Selectors are the sets of labels of which a workload must have one; an empty set is everybody's.
func Selectors(o Selecting) []map[string]string {
	if !IsTargeted(o) {
		return []map[string]string{o.SelectorLabels()}
	}
	names, _ := o.(Targeting).TargetGateways()
	out := make([]map[string]string, 0, len(names))
	for _, name := range names {
		out = append(out, map[string]string{LabelGatewayName: name})
	}
	return out
}

// Selects tells whether an object is for workloads with these labels, whatever their namespace.
func Selects(o Selecting, labels map[string]string) bool {
	if !IsTargeted(o) {
		return SelectorMatches(o.SelectorLabels(), labels)
	}
	name, ok := labels[LabelGatewayName]
	names, _ := o.(Targeting).TargetGateways()
	return ok && slices.Contains(names, name)
}
