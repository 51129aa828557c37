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
	KindMeshConfig         Kind = "ConfigMap" // the ConfigMap with the mesh's configuration
	KindServiceEntry       Kind = "ServiceEntry"
	KindWorkloadEntry      Kind = "WorkloadEntry"
	KindVirtualService     Kind = "VirtualService"
	KindDestinationRule    Kind = "DestinationRule"
	KindSidecar            Kind = "Sidecar"
	KindPeerAuthentication Kind = "PeerAuthentication"
	KindTelemetry          Kind = "Telemetry"
	KindDrainNotice        Kind = "DrainNotice"
)

// Kinds lists every kind in the order of pages and reports.
var Kinds = []Kind{
	KindNamespace, KindService, KindEndpointSlice, KindPod, KindNode, KindMeshConfig, KindServiceEntry,
	KindWorkloadEntry, KindVirtualService, KindDestinationRule, KindSidecar, KindTelemetry, KindDrainNotice,
	KindPeerAuthentication, KindAuthorizationPolicy, KindRequestAuthentication, KindKeySet,
	KindEnvoyFilter, KindSecret, KindProxyConfig, KindWasmPlugin, KindGateway,
	KindKubernetesGateway, KindHTTPRoute, KindReferenceGrant, KindGRPCRoute, KindTLSRoute, KindTCPRoute,
	KindBackendTLSPolicy, KindListenerSet, KindIngress, KindIngressClass,
}

// Key names one source object.
type Key struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns "Kind/namespace/name", as in logs and error messages.
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

// Meta is the metadata of all source objects.
type Meta struct {
	Key
	Labels          map[string]string
	Annotations     map[string]string
	ResourceVersion string    // opaque; a content hash for files
	Created         time.Time // older objects win conflicts; zero for files
	Origin          string    // where the object is: "file.yaml:12" or "kubernetes"
}

// configNames are the names of kinds in the metadata of resources, as in Istio's "istio.config".
var configNames = map[Kind]string{
	KindVirtualService: "virtual-service", KindHTTPRoute: "http-route", KindGRPCRoute: "grpc-route", KindDestinationRule: "destination-rule",
	KindTLSRoute: "tls-route", KindTCPRoute: "tcp-route", KindBackendTLSPolicy: "backend-tls-policy",
	KindIngress: "ingress",
}

// ConfigName returns the kind's name in the metadata of resources; empty: none.
func (k Kind) ConfigName() string { return configNames[k] }

// KindOfConfig returns the kind with a name in the metadata of resources; empty: none.
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
	// Metadata never returns nil.
	Metadata() *Meta
}

// Metadata implements Object for every type that embeds Meta.
func (m *Meta) Metadata() *Meta { return m }

// CompareAge puts first the object that wins a conflict: the one created earlier. Objects of one second, as those of one
// file are, go by name, then namespace, as in Istio; kinds of the Gateway API go by namespace first, as it demands.
func CompareAge(a, b Object) int {
	ma, mb := a.Metadata(), b.Metadata()
	if r := cmp.Or(ma.Created.Compare(mb.Created), strings.Compare(string(ma.Kind), string(mb.Kind))); r != 0 || isGatewayAPI(a) {
		return cmp.Or(r, ma.Key.Compare(mb.Key))
	}
	return cmp.Or(strings.Compare(ma.Name, mb.Name), strings.Compare(ma.Namespace, mb.Namespace))
}

// isGatewayAPI reports whether an object is of a kind of the Gateway API.
func isGatewayAPI(o Object) bool {
	switch o := o.(type) {
	case *BackendTLSPolicy:
		return true
	case *Gateway:
		return o.IsKubernetes()
	case *VirtualService:
		return o.Kind.IsKubernetesRoute()
	}
	return false
}

// Older reports whether a wins over b; see CompareAge.
func Older(a, b Object) bool { return CompareAge(a, b) < 0 }

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Meta
	Distribution Distribution // of services without one
	Delivery     Delivery     // of sidecars without one; empty: the mesh's
}

// LabelNamespace is the label that every namespace has, with its name.
const LabelNamespace = "kubernetes.io/metadata.name"

// ImpliedLabels returns the labels of a namespace without an object.
func ImpliedLabels(namespace string) map[string]string {
	return map[string]string{LabelNamespace: namespace}
}

// Revision numbers the batches of changes in the store. It only grows while a control plane runs. Revisions of
// different control planes cannot be compared.
type Revision uint64

// Origins is the set of objects that a piece of configuration was made from. It is immutable, and
// nil is the empty set. Equal sets of one process share their memory.
//
// An origin is an object whose content went into the result, or whose presence decided it. An
// object that was looked for and not found is none. The mesh's configuration, namespaces, nodes,
// Pods and classes of Ingresses are never among them: they shape everything, or are too many.
type Origins struct {
	keys []Key // in the order of Key.Compare, each once
}

// OriginsOf returns a set of keys, in any order. It does not retain the list.
func OriginsOf(keys ...Key) *Origins {
	switch len(keys) {
	case 0:
		return nil
	case 1:
		return originSets.intern(keys)
	}
	return originSets.intern(sortedKeys(keys))
}

// sortedKeys returns keys sorted, without duplicates. It returns keys itself if possible.
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

// Keys returns the members in the order of Key.Compare. Callers must not change the list.
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

// Len returns the number of members.
func (o *Origins) Len() int { return len(o.Keys()) }

// Union returns the members of both sets.
func (o *Origins) Union(p *Origins) *Origins {
	switch {
	case o == p || p == nil:
		return o
	case o == nil:
		return p
	}
	return OriginsOf(slices.Concat(o.keys, p.keys)...)
}

// Intersect returns the common members of both sets.
func (o *Origins) Intersect(p *Origins) *Origins {
	if o == p {
		return o
	}
	return OriginsOf(slices.DeleteFunc(slices.Clone(o.Keys()), func(k Key) bool { return !p.Has(k) })...)
}

// Equal reports whether two sets have the same members.
func (o *Origins) Equal(p *Origins) bool { return o == p || slices.Equal(o.Keys(), p.Keys()) }

// originSets are the sets in use, held weakly, as in package unique.
var originSets = &originInterner{known: map[uint64]weak.Pointer[Origins]{}}

type originInterner struct {
	mu    sync.Mutex // guards the fields below
	known map[uint64]weak.Pointer[Origins]
	puts  int // since the last sweep
}

var originSeed = maphash.MakeSeed()

// intern returns the shared set of sorted keys. Different sets with equal hashes, which are improbable, are not shared.
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

// sweep removes the sets that are not used any more.
func (in *originInterner) sweep() {
	in.puts = 0
	for sum, p := range in.known {
		if p.Value() == nil {
			delete(in.known, sum)
		}
	}
}

// OriginList collects origins in the order of reading. The zero value is empty.
type OriginList struct {
	keys  []Key
	floor int // the last mark; origins before it may have to be added again
}

// recentOrigins is how many members Add compares with. A unit reads one object many times in a row; a duplicate only
// costs its place.
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

// Drop removes what was added since a mark.
func (l *OriginList) Drop(mark int) {
	l.keys, l.floor = l.keys[:mark], min(l.floor, mark)
}

// Since returns what was added since a mark; since 0 it is everything. The list is unchanged.
func (l *OriginList) Since(mark int) *Origins { return OriginsOf(l.keys[mark:]...) }

// IsOrigin reports whether the object is recorded as an origin of what is made from it.
func (k Key) IsOrigin() bool {
	return !k.IsMeshConfig() && !slices.Contains(unrecorded, k.Kind)
}

var unrecorded = []Kind{KindPod, KindNode, KindNamespace, KindDrainNotice, KindKeySet, KindIngressClass}

// LabelWorkloadName names the workload of a Pod, in place of its controller's name. It is Istio's.
const LabelWorkloadName = "service.istio.io/workload-name"

// LabelRevision names the control plane that uses an object of Istio or the Gateway API, and the one that injects the
// Pods of a namespace. All control planes use an object without it.
const LabelRevision = "istio.io/rev"

// DefaultRevision is the revision of a control plane without another one, as in Istio.
const DefaultRevision = "default"

// Selecting is an object that applies to workloads of its namespace or, in the root namespace, of all namespaces.
// Selectors returns which ones: an object may name Gateways instead of labels.
type Selecting interface {
	Object
	// SelectorLabels returns the labels that a workload must have; empty: all workloads.
	SelectorLabels() map[string]string
	// ShapesOutbound reports whether the object applies to calls of the workloads, not only to calls to them. Then its
	// labels distinguish proxy groups.
	ShapesOutbound() bool
}

// IsFor reports whether an object applies to workloads with a namespace and labels. root is the namespace of objects
// for all namespaces. It is not for Gateways, which select routers of all namespaces.
func IsFor(o Selecting, namespace string, labels map[string]string, root string) bool {
	ns := o.Metadata().Namespace
	return (ns == namespace || ns == root && !IsTargeted(o)) && Selects(o, labels)
}

// SortPolicies sorts the objects of one workload by precedence: those of the root namespace first, in each namespace
// the oldest first.
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

// SameAudience reports whether two versions of an object apply to the same proxies.
func SameAudience(a, b Object) bool {
	switch a := a.(type) {
	case *Sidecar:
		b, ok := b.(*Sidecar)
		return ok && maps.Equal(a.Selector, b.Selector)
	case *PeerAuthentication:
		b, ok := b.(*PeerAuthentication)
		return ok && maps.Equal(a.Selector, b.Selector) && a.Disables() == b.Disables() // callers depend on that
	case Selecting:
		b, ok := b.(Selecting)
		return ok && IsTargeted(a) == IsTargeted(b) && slices.EqualFunc(Selectors(a), Selectors(b), maps.Equal)
	}
	return true
}

// LabelGatewayName is the label of routers with the name of their Gateway of the Gateway API.
const LabelGatewayName = "gateway.networking.k8s.io/gateway-name"

// Targets are the targetRefs of a policy, which replace a selector: routers of Gateways of the Gateway API in the
// policy's namespace, even if that is the root namespace.
type Targets struct {
	Targeted bool
	Gateways []string // names; empty if the policy names only missing objects, and has no effect
}

// TargetGateways implements Targeting.
func (t *Targets) TargetGateways() (names []string, targeted bool) { return t.Gateways, t.Targeted }

// Targeting is an object that may name Gateways.
type Targeting interface {
	TargetGateways() (names []string, targeted bool)
}

// IsTargeted reports whether an object has targets.
func IsTargeted(o Selecting) bool {
	t, ok := o.(Targeting)
	if !ok {
		return false
	}
	_, targeted := t.TargetGateways()
	return targeted
}

// Selectors returns sets of labels of which a workload must have one. The empty set matches all workloads.
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

// Selects reports whether an object applies to workloads with labels, regardless of their namespace.
func Selects(o Selecting, labels map[string]string) bool {
	if !IsTargeted(o) {
		return SelectorMatches(o.SelectorLabels(), labels)
	}
	name, ok := labels[LabelGatewayName]
	names, _ := o.(Targeting).TargetGateways()
	return ok && slices.Contains(names, name)
}

// IsPlainName reports whether a name has only letters, digits, ".", "-" and "_", and begins with a letter or digit, as all
// names of Kubernetes and of hosts do. Shells and terminals give no character of it another meaning.
func IsPlainName(name string) bool {
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '-' && c != '_') {
			return false
		}
	}
	return name != ""
}

// CommandWord returns a name for a command that users copy into a shell. Others may have chosen the name: if it is not plain,
// the word is placeholder.
func CommandWord(name, placeholder string) string {
	if IsPlainName(name) {
		return name
	}
	return placeholder
}
