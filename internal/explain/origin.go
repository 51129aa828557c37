package explain

import (
	"bytes"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Origins are the objects that a part of the configuration comes from, in order: the
// VirtualServices and DestinationRules in it, or, where there are none, the ServiceEntries
// that define its host. None: it comes from Kubernetes' objects alone.
func Origins(snap *store.Snapshot, p server.Part) []model.Key {
	var out []model.Key
	switch p.Type {
	case resource.Cluster:
		out = named(p, "destination-rule", model.KindDestinationRule)
	case resource.VirtualHost, resource.RouteConfig:
		out = named(p, "virtual-service", model.KindVirtualService)
	case resource.Extension:
		return pluginOf(snap, p)
	case resource.Bootstrap:
		return filterOf(snap, p)
	case resource.Listener:
		out = related(snap, p, model.KindVirtualService)
	}
	out = append(out, named(p, "envoy-filter", model.KindEnvoyFilter)...)
	out = slices.DeleteFunc(out, func(k model.Key) bool { return snap.Get(k) == nil })
	if len(out) == 0 {
		out = related(snap, p, model.KindServiceEntry)
	}
	return out
}

// pluginOf is the WasmPlugin of an extension's name: "PREFIX/NAMESPACE.NAME".
func pluginOf(snap *store.Snapshot, p server.Part) []model.Key {
	_, full, _ := strings.Cut(p.Entry.Name, "/wasmplugin/")
	namespace, name, _ := strings.Cut(full, ".")
	key := model.Key{Kind: model.KindWasmPlugin, Namespace: namespace, Name: name}
	if snap.Get(key) == nil {
		return nil
	}
	return []model.Key{key}
}

// filterOf is the EnvoyFilter of a patch of bootstraps: "ORDER/NAMESPACE/NAME".
func filterOf(snap *store.Snapshot, p server.Part) []model.Key {
	_, full, _ := strings.Cut(p.Entry.Name, "/")
	namespace, name, _ := strings.Cut(full, "/")
	key := model.Key{Kind: model.KindEnvoyFilter, Namespace: namespace, Name: name}
	if snap.Get(key) == nil {
		return nil
	}
	return []model.Key{key}
}

// named are the objects that a resource's metadata, Istio's "istio.config", names.
func named(p server.Part, in string, kind model.Kind) []model.Key {
	var out []model.Key
	b, middle, before := p.Entry.Resource().Value(), []byte("/"+in+"/"), []byte("/namespaces/")
	for {
		i := bytes.Index(b, middle)
		if i < 0 {
			break
		}
		head, tail := b[:i], b[i+len(middle):]
		end := 0
		for end < len(tail) && nameByte(tail[end]) {
			end++
		}
		if j := bytes.LastIndex(head, before); j >= 0 && !bytes.ContainsRune(head[j+len(before):], '/') {
			out = append(out, model.Key{Kind: kind, Namespace: string(head[j+len(before):]), Name: string(tail[:end])})
		}
		b = tail[end:]
	}
	slices.SortFunc(out, model.Key.Compare)
	return slices.Compact(out)
}

// related are the objects of a kind that a resource is made of by its hosts.
func related(snap *store.Snapshot, p server.Part, kind model.Kind) []model.Key {
	var out []model.Key
	for o := range snap.All(kind) {
		key := o.Metadata().Key
		if of := relation(snap, key); of != nil && of(p.Type, p.Entry) {
			out = append(out, key)
		}
	}
	return out
}
