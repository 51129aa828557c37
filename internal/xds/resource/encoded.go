package resource

import (
	"encoding/hex"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/xds/wire"
)

// Encoded is an encoded resource. Tables and streams that have it share it. It is immutable.
type Encoded struct {
	Name string
	// Version is the hash of the content, in hex. Control planes of the same build give equal
	// content the same version. Envoy reports it when it reconnects. The version of a listener that
	// uses scopes ends in "s", see UsesScopes.
	Version string
	// RouteConfigs are the route configurations that a listener requests by name. They follow from
	// the content, so that interned equals have the same.
	RouteConfigs []string
	// Host is the service that endpoints belong to; empty for other types. It follows from the name.
	Host string

	// delta is a field of DeltaDiscoveryResponse: tag and length of `resources`, and the discovery
	// Resource {name, version, Any}.
	delta []byte
	// any is the google.protobuf.Any inside delta.
	any []byte
	// renamed is the last result of Renamed, or that of Asked.
	renamed atomic.Pointer[Encoded]
}

// DeltaField returns the resource as a `resources` field of DeltaDiscoveryResponse. Callers must
// not change it.
func (e *Encoded) DeltaField() []byte { return e.delta }

// Any returns the encoded google.protobuf.Any. Callers must not change it.
func (e *Encoded) Any() []byte { return e.any }

// clusterType is the field Cluster.cluster_type, and its field name.
const (
	clusterType     = 38
	clusterTypeName = 1
	// DNSClusterType is the type of clusters whose endpoints are the addresses of DNS names.
	DNSClusterType = "envoy.clusters.dns"
)

// IsResolved reports whether a cluster's endpoints are the addresses of DNS names.
func (e *Encoded) IsResolved() bool {
	found := false
	_ = wire.Fields(e.Value(), func(num protowire.Number, v []byte) error {
		if num != clusterType {
			return nil
		}
		return wire.Fields(v, func(num protowire.Number, v []byte) error {
			found = found || num == clusterTypeName && string(v) == DNSClusterType
			return nil
		})
	})
	return found
}

// Value returns the encoded message without its Any. Callers must not change it.
func (e *Encoded) Value() []byte {
	b := e.any
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		b = b[n:]
		if num == 2 && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			return v
		}
		b = b[protowire.ConsumeFieldValue(num, typ, b):]
	}
	return nil
}

// ValueField returns the message as a length-delimited field with number 2, which is the end of its
// Any. RouteConfiguration.virtual_hosts has that number too, so a copy of these bytes adds a
// virtual host to a route configuration.
func (e *Encoded) ValueField() []byte {
	return e.any[len(e.any)-wire.SizeField(anyValue, len(e.Value())):]
}

// SotwField returns the resource as a `resources` field of DiscoveryResponse: its Any with field
// number 2, which is the end of the discovery Resource.
func (e *Encoded) SotwField() []byte {
	return e.delta[len(e.delta)-wire.SizeField(resourceAny, len(e.any)):]
}

var deterministic = proto.MarshalOptions{Deterministic: true}

// Encode encodes m with a name. Equal messages have equal versions.
func Encode(t Type, name string, m proto.Message) (*Encoded, error) {
	return encodeMessage(t, name, m, "")
}

// EncodeScoped is Encode for a listener that uses scopes.
func EncodeScoped(name string, m proto.Message) (*Encoded, error) {
	return encodeMessage(Listener, name, m, scoped)
}

func encodeMessage(t Type, name string, m proto.Message, behindVersion string) (*Encoded, error) {
	value, err := deterministic.Marshal(m)
	if err != nil {
		return nil, err
	}
	return encodeVersioned(t, name, hash(value)+behindVersion, value), nil
}

// EncodeBytesScoped is EncodeBytes for a listener that uses scopes.
func EncodeBytesScoped(name string, value []byte) *Encoded {
	return encodeVersioned(Listener, name, hash(value)+scoped, value)
}

// scoped is not a hexadecimal digit.
const scoped = "s"

// UsesScopes reports whether a listener uses scopes, by its version. A proxy that connects again
// reports only versions, also of listeners that no table has any more.
func UsesScopes(version []byte) bool { return len(version) > 0 && version[len(version)-1] == scoped[0] }

// EncodeBytes wraps an encoded message.
func EncodeBytes(t Type, name string, value []byte) *Encoded {
	return encodeVersioned(t, name, hash(value), value)
}

// Join wraps the message that parts form together. The caller provides its version.
func Join(t Type, name, version string, parts ...[]byte) *Encoded {
	return encodeVersioned(t, name, version, parts...)
}

// hash returns the hash of a content as 16 hex digits.
func hash(value []byte) string {
	var sum [8]byte
	return hex.EncodeToString(appendUint64(sum[:0], xxhash.Sum64(value)))
}

func appendUint64(b []byte, v uint64) []byte {
	for i := 56; i >= 0; i -= 8 {
		b = append(b, byte(v>>i))
	}
	return b
}

// Field numbers of google.protobuf.Any, discovery Resource and the two responses.
const (
	anyTypeURL, anyValue                  = 1, 2
	resourceVersion, resourceAny, resName = 1, 2, 3
	deltaResources                        = 2
)

func encodeVersioned(t Type, name, version string, parts ...[]byte) *Encoded {
	url, valueLen := t.URL(), 0
	for _, p := range parts {
		valueLen += len(p)
	}
	anyLen := wire.SizeField(anyTypeURL, len(url)) + wire.SizeField(anyValue, valueLen)
	resLen := wire.SizeField(resourceVersion, len(version)) + wire.SizeField(resourceAny, anyLen) + wire.SizeField(resName, len(name))

	b := make([]byte, 0, wire.SizeField(deltaResources, resLen))
	b = wire.AppendHeader(b, deltaResources, resLen)
	b = wire.AppendField(b, resourceVersion, version)
	b = wire.AppendField(b, resName, name)
	b = wire.AppendHeader(b, resourceAny, anyLen)
	start := len(b)
	b = wire.AppendField(b, anyTypeURL, url)
	b = wire.AppendHeader(b, anyValue, valueLen)
	for _, p := range parts {
		b = append(b, p...)
	}
	return &Encoded{Name: name, Version: version, delta: b, any: b[start:len(b):len(b)]}
}

// Interner makes equal resources identical: proxy groups with the same resource share its bytes. It
// holds resources weakly: unused ones are collected.
type Interner struct {
	mu    sync.Mutex // guards known
	known map[internKey]weak.Pointer[Encoded]
	puts  int // since the last sweep; guarded by mu
}

type internKey struct {
	t       Type
	name    string
	version string
}

// NewInterner returns an empty Interner.
func NewInterner() *Interner {
	return &Interner{known: map[internKey]weak.Pointer[Encoded]{}}
}

// Intern returns the one Encoded that is equal to e.
func (in *Interner) Intern(t Type, e *Encoded) *Encoded {
	key := internKey{t, e.Name, e.Version}
	in.mu.Lock()
	defer in.mu.Unlock()
	if old := in.known[key].Value(); old != nil {
		return old
	}
	in.known[key] = weak.Make(e)
	in.puts++
	if in.puts > len(in.known)/2+1024 {
		in.sweep()
	}
	return e
}

// sweep removes resources that were collected. Its cost is spread over the additions before it.
func (in *Interner) sweep() {
	in.puts = 0
	for k, p := range in.known {
		if p.Value() == nil {
			delete(in.known, k)
		}
	}
}
