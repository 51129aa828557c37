package explain

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// test tells whether a resource is made of an object.
type test = func(resource.Type, *table.Entry) bool

// relation is the test for one object, by the names that resources have after hosts, and by
// the metadata that they bear of VirtualServices and DestinationRules, Istio's
// "istio.config". nil where neither tells.
func relation(snap *store.Snapshot, key model.Key) test {
	o := snap.Get(key)
	if slices.Contains(routing, key.Kind) {
		return ofVirtualService(key, o)
	}
	if slices.Contains(shaping, key.Kind) {
		path := configPath(key, key.Kind.ConfigName())
		return func(t resource.Type, e *table.Entry) bool { return t == resource.Cluster && mentions(e, path) }
	}
	if key.Kind == model.KindEnvoyFilter {
		path := configPath(key, "envoy-filter")
		return func(_ resource.Type, e *table.Entry) bool { return mentions(e, path) }
	}
	if o == nil {
		return nil
	}
	switch o := o.(type) {
	case *model.Service:
		return ofHosts([]model.Host{o.Hostname}, true)
	case *model.ServiceEntry:
		return ofHosts(o.Hosts, true)
	case *model.EndpointSlice:
		if s, ok := snap.Get(model.Key{Kind: model.KindService, Namespace: o.Namespace, Name: o.Service}).(*model.Service); ok {
			return ofHosts([]model.Host{s.Hostname}, false)
		}
	case *model.Gateway:
		return ofGateway(snap, o)
	}
	return ofAudience(o)
}

func configPath(key model.Key, kind string) []byte {
	return []byte("/namespaces/" + key.Namespace + "/" + kind + "/" + key.Name)
}

// shaping are the kinds that say how to talk to whom a call goes to.
var shaping = []model.Kind{model.KindDestinationRule, model.KindBackendTLSPolicy}

// routing are the kinds that say where calls go.
var routing = []model.Kind{model.KindVirtualService, model.KindHTTPRoute, model.KindGRPCRoute, model.KindTLSRoute, model.KindTCPRoute}

func ofVirtualService(key model.Key, o model.Object) test {
	path := configPath(key, key.Kind.ConfigName())
	var hosts []model.Host // that TCP and TLS routes lead to: filter chains bear no metadata
	if v, ok := o.(*model.VirtualService); ok {
		for _, b := range l4Backends(v) {
			hosts = append(hosts, b.Host)
		}
	}
	return func(t resource.Type, e *table.Entry) bool {
		switch t {
		case resource.VirtualHost, resource.RouteConfig:
			return mentions(e, path)
		case resource.Listener:
			for _, h := range hosts {
				if leadsTo(e, h) {
					return true
				}
			}
		}
		return false
	}
}

func l4Backends(v *model.VirtualService) []model.Backend {
	var out []model.Backend
	for i := range v.TLS {
		out = append(out, v.TLS[i].Backends...)
	}
	for i := range v.TCP {
		out = append(out, v.TCP[i].Backends...)
	}
	return out
}

// ofHosts tests for resources of services; all: not only for their endpoints.
func ofHosts(hosts []model.Host, all bool) test {
	return func(t resource.Type, e *table.Entry) bool {
		if !all && t != resource.Endpoints {
			return false
		}
		for _, h := range hosts {
			switch t {
			case resource.Cluster, resource.Endpoints:
				if strings.HasSuffix(e.Name, "|"+string(h)) {
					return true
				}
			case resource.VirtualHost:
				if strings.Contains(e.Name, "/"+string(h)+":") {
					return true
				}
			case resource.RouteConfig:
				if mentions(e, []byte("/"+string(h))) {
					return true
				}
			case resource.Listener:
				if leadsTo(e, h) {
					return true
				}
			}
		}
		return false
	}
}

// mentions tells whether a resource's encoding has a text that ends where the text does:
// "v1" is not mentioned by "v1-canary". What follows a string in protobuf is a tag, whose
// byte is no letter of a name, or the end.
func mentions(e *table.Entry, text []byte) bool {
	b := e.Resource().Value()
	for {
		i := bytes.Index(b, text)
		if i < 0 {
			return false
		}
		b = b[i+len(text):]
		if len(b) == 0 || !nameByte(b[0]) {
			return true
		}
	}
}

// holds tells whether a resource's encoding has a string that is the text and no more: its length goes
// before it. What follows it does not matter, which may be a tag that looks like a letter of a name.
func holds(e *table.Entry, text string) bool {
	return bytes.Contains(e.Resource().Value(), append(binary.AppendUvarint(nil, uint64(len(text))), text...))
}

// leadsTo tells whether a resource's encoding has the name of a cluster of a host, with its length.
func leadsTo(e *table.Entry, host model.Host) bool {
	b, text := e.Resource().Value(), []byte("|"+string(host))
	for end := 0; ; {
		i := bytes.Index(b[end:], text)
		if i < 0 {
			return false
		}
		end += i + len(text)
		start := max(bytes.LastIndex(b[:end], []byte("outbound|")), bytes.LastIndex(b[:end], []byte("inbound|")))
		if start >= 0 && bytes.HasSuffix(b[:start], binary.AppendUvarint(nil, uint64(end-start))) {
			return true
		}
	}
}

func nameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '.'
}
