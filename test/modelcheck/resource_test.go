package modelcheck

import (
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// kind is a type of resources.
type kind int

const (
	cds kind = iota
	eds
	sds
	srds
	lds
	rds
	vhds
	kinds
)

// kindInfo is what differs between types.
type kindInfo struct {
	short   string
	message proto.Message
	named   bool // subscriptions are by name
	whole   bool // state of the world: a response has all resources
	partial bool // Envoy applies the valid resources of a response that it refuses
}

var kindTable = [kinds]kindInfo{
	cds:  {"CDS", &clusterv3.Cluster{}, false, true, true},
	eds:  {"EDS", &endpointv3.ClusterLoadAssignment{}, true, false, false},
	sds:  {"SDS", &tlsv3.Secret{}, true, false, false},
	srds: {"SRDS", &routev3.ScopedRouteConfiguration{}, false, false, true},
	lds:  {"LDS", &listenerv3.Listener{}, false, true, true},
	rds:  {"RDS", &routev3.RouteConfiguration{}, true, false, false},
	vhds: {"VHDS", &routev3.VirtualHost{}, false, false, false},
}

func (k kind) String() string { return kindTable[k].short }

func (k kind) url() string {
	return "type.googleapis.com/" + string(kindTable[k].message.ProtoReflect().Descriptor().FullName())
}

func kindOf(url string) kind {
	for k := range kinds {
		if k.url() == url {
			return k
		}
	}
	return kinds
}

// resource is what the Envoys and the checks need to know of a resource. It is immutable and shared.
type resource struct {
	hash      uint64   // of the content
	name      string   // from the content; empty for types whose name is not in it
	endpoints string   // of a cluster: the name of its endpoints; empty: it does not use EDS
	clusters  []string // clusters that it refers to
	routes    []string // of a listener or a scope: route configurations
	scoped    bool     // of a listener: it uses scopes
	onDemand  bool     // of a route configuration: its virtual hosts come by VHDS
	secrets   []string // that come by ADS
	denies    []string // of a listener: policies of the model that it enforces
	closed    bool     // of a listener: it has no chain that accepts a call
	addresses []string // of endpoints
}

// contentKey identifies the content of a resource in the cache of parsed ones.
type contentKey struct {
	k    kind
	hash uint64
}

var parsed sync.Map // contentKey to *resource: the same resources come again and again

// parse reads a resource. It panics if the bytes are invalid, as such bytes must not leave the pipeline.
func parse(k kind, b []byte) *resource {
	h := fnv.New64a()
	_, _ = h.Write(b)
	key := contentKey{k, h.Sum64()}
	if r, ok := parsed.Load(key); ok {
		return r.(*resource)
	}
	m := proto.Clone(kindTable[k].message)
	if err := proto.Unmarshal(b, m); err != nil {
		panic(err)
	}
	r := &resource{hash: key.hash}
	r.read(m)
	for _, list := range []*[]string{&r.clusters, &r.routes, &r.secrets, &r.denies, &r.addresses} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	parsed.Store(key, r)
	return r
}

func (r *resource) read(m proto.Message) {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		r.name = m.GetName()
		if m.GetType() == clusterv3.Cluster_EDS {
			if r.endpoints = m.GetEdsClusterConfig().GetServiceName(); r.endpoints == "" {
				r.endpoints = m.GetName()
			}
		}
	case *endpointv3.ClusterLoadAssignment:
		r.name = m.GetClusterName()
		for _, l := range m.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				if a := e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress(); a != "" {
					r.addresses = append(r.addresses, a)
				}
			}
		}
		return
	case *routev3.ScopedRouteConfiguration:
		r.name, r.routes = m.GetName(), []string{m.GetRouteConfigurationName()}
	case *listenerv3.Listener:
		r.name = m.GetName()
		r.closed = true
	case *routev3.RouteConfiguration:
		r.name, r.onDemand = m.GetName(), m.GetVhds() != nil
	case *tlsv3.Secret:
		r.name = m.GetName()
	}
	r.walk(m.ProtoReflect())
}

// walk collects references, also in messages that are packed as Any.
func (r *resource) walk(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *anypb.Any:
		if in, err := x.UnmarshalNew(); err == nil {
			r.walk(in.ProtoReflect())
		}
		return
	case *hcmv3.HttpConnectionManager:
		r.closed = false
		if n := x.GetRds().GetRouteConfigName(); n != "" {
			r.routes = append(r.routes, n)
		}
		r.scoped = r.scoped || x.GetScopedRoutes() != nil
	case *tlsv3.SdsSecretConfig:
		if _, ads := x.GetSdsConfig().GetConfigSourceSpecifier().(*corev3.ConfigSource_Ads); ads {
			r.secrets = append(r.secrets, x.GetName())
		}
	}
	if name := m.Descriptor().FullName(); strings.HasSuffix(string(name), "tcp_proxy.v3.TcpProxy") {
		r.closed = false
	}
	weighted := m.Descriptor().Name() == "ClusterWeight"
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
				r.noteDeny(key.String())
				if f.MapValue().Message() != nil {
					r.walk(v.Message())
				}
				return true
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				r.walk(v.List().Get(i).Message())
			}
		case f.IsList():
		case f.Message() != nil:
			r.walk(v.Message())
		case f.Kind() == protoreflect.StringKind && (f.Name() == "cluster" || f.Name() == "cluster_name" || weighted && f.Name() == "name"):
			if v.String() != "" {
				r.clusters = append(r.clusters, v.String())
			}
		}
		return true
	})
}

// anchor finds the model's policies in the names of an RBAC filter's policies.
var anchor = regexp.MustCompile(`policy\[(deny-\d+)\]`)

func (r *resource) noteDeny(key string) {
	if m := anchor.FindStringSubmatch(key); m != nil {
		r.denies = append(r.denies, m[1])
	}
}
