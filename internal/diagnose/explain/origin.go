package explain

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Origins are the objects that a part of the configuration comes from, in order: the
// VirtualServices, routes of the Gateway API, DestinationRules and BackendTLSPolicies in it, the Gateways that have a router listen, the
// Sidecars that have a workload listen there or whose files a listener has, or, where there are none, the ServiceEntries that define its host. None: it comes from
// Kubernetes' objects alone.
func Origins(snap *store.Snapshot, p distribution.Part) []model.Key {
	var out []model.Key
	switch p.Type {
	case resource.Cluster:
		for _, kind := range shaping {
			out = append(out, named(p, kind.ConfigName(), kind)...)
		}
	case resource.VirtualHost, resource.RouteConfig:
		for _, kind := range routing {
			out = append(out, named(p, kind.ConfigName(), kind)...)
		}
	case resource.Extension:
		return pluginOf(snap, p)
	case resource.Bootstrap:
		return filterOf(snap, p)
	case resource.Secret:
		return secretBehind(snap, p)
	case resource.Listener:
		for _, kind := range routing {
			if p.Entry.Name != inboundListener { // nobody's routes are there
				out = append(out, related(snap, p, kind)...)
			}
		}
		out = slices.Concat(out, gatewaysBehind(snap, p), sidecarsBehind(snap, p))
	}
	out = append(out, named(p, "envoy-filter", model.KindEnvoyFilter)...)
	out = slices.DeleteFunc(out, func(k model.Key) bool { return snap.Get(k) == nil })
	if len(out) == 0 && p.Type != resource.Listener {
		out = gatewaysBehind(snap, p)
	}
	if len(out) == 0 {
		out = related(snap, p, model.KindServiceEntry)
	}
	return out
}

// pluginOf is the WasmPlugin of an extension's name: "PREFIX/NAMESPACE.NAME", for connections with
// "/network" behind.
func pluginOf(snap *store.Snapshot, p distribution.Part) []model.Key {
	_, full, _ := strings.Cut(p.Entry.Name, "/wasmplugin/")
	full, _, _ = strings.Cut(full, "/")
	namespace, name, _ := strings.Cut(full, ".")
	return ifThere(snap, model.Key{Kind: model.KindWasmPlugin, Namespace: namespace, Name: name})
}

// filterOf is the EnvoyFilter of a patch of bootstraps: "ORDER/NAMESPACE/NAME".
func filterOf(snap *store.Snapshot, p distribution.Part) []model.Key {
	_, full, _ := strings.Cut(p.Entry.Name, "/")
	namespace, name, _ := strings.Cut(full, "/")
	return ifThere(snap, model.Key{Kind: model.KindEnvoyFilter, Namespace: namespace, Name: name})
}

func ifThere(snap *store.Snapshot, k model.Key) []model.Key {
	if snap.Get(k) == nil {
		return nil
	}
	return []model.Key{k}
}

// sidecarsBehind are the Sidecars that have a workload listen there, or name the files of which its own
// listener has its certificates.
func sidecarsBehind(snap *store.Snapshot, p distribution.Part) []model.Key {
	if p.Proxy == nil || p.Proxy.Type != model.ProxySidecar {
		return nil
	}
	var out []model.Key
	for o := range snap.All(model.KindSidecar) {
		s, ok := o.(*model.Sidecar)
		if !ok || s.Namespace != p.Proxy.Namespace || !model.SelectorMatches(s.Selector, p.Proxy.Labels) {
			continue
		}
		if hasListener(s, p.Entry.Name) || slices.ContainsFunc(ingressFiles(s), func(file string) bool { return holds(p.Entry, file) }) {
			out = append(out, s.Key)
		}
	}
	slices.SortFunc(out, model.Key.Compare)
	return out
}

// hasListener tells whether a listener's name, ADDRESS_PORT, may be that of one of a Sidecar's.
func hasListener(s *model.Sidecar, name string) bool {
	at := func(bind string, port uint32) bool {
		return strings.HasSuffix(name, "_"+strconv.FormatUint(uint64(port), 10)) && (bind == "" || strings.HasPrefix(name, bind+"_"))
	}
	return slices.ContainsFunc(s.Egress, func(l model.EgressListener) bool { return l.Port != nil && at(l.Bind, l.Port.Number) }) ||
		slices.ContainsFunc(s.Ingress, func(l model.IngressListener) bool { return at(l.Bind, l.Port.Number) })
}

// ingressFiles are those of a Sidecar's own listeners.
func ingressFiles(s *model.Sidecar) []string {
	var out []string
	for i := range s.Ingress {
		t := s.Ingress[i].TLS
		if t == nil {
			continue
		}
		out = append(out, t.CACertificates, t.CRL)
		for _, c := range t.Certificates {
			out = append(out, c.Certificate, c.PrivateKey)
		}
	}
	return slices.DeleteFunc(out, func(file string) bool { return file == "" })
}

// named are the objects that a resource's metadata, Istio's "istio.config", names.
func named(p distribution.Part, in string, kind model.Kind) []model.Key {
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
func related(snap *store.Snapshot, p distribution.Part, kind model.Kind) []model.Key {
	var out []model.Key
	for o := range snap.All(kind) {
		key := o.Metadata().Key
		if of := relation(snap, key); of != nil && of(p.Type, p.Entry) {
			out = append(out, key)
		}
	}
	return out
}
