package explain

import (
	"bytes"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// audience tells which proxies an object that selects workloads, or is given to those of others, concerns, and in what;
// nil where its selector does not tell, as those of which it was taken away are concerned, too. Of a batch nothing else tells who is concerned by
// which object.
func (x *Explainer) audience(snap *store.Snapshot, o model.Object, last *changelog.LastChange) func(*model.Proxy, resource.Type) bool {
	if o == nil || last.Moved {
		return nil
	}
	root := x.mesh(snap).RootNamespace
	switch o := o.(type) {
	case *model.ProxyConfig: // for agents and the injector
		return func(*model.Proxy, resource.Type) bool { return false }
	case *model.Sidecar:
		return func(p *model.Proxy, _ resource.Type) bool {
			return p.Type == model.ProxySidecar && (o.Namespace == p.Namespace || o.Namespace == root && len(o.Selector) == 0) &&
				model.SelectorMatches(o.Selector, p.Labels)
		}
	case *model.Secret:
		given := givenTo(snap, o.Key)
		return func(p *model.Proxy, _ resource.Type) bool { return given(p) }
	case *model.PeerAuthentication: // where it is DISABLE callers are told
		return func(p *model.Proxy, t resource.Type) bool {
			return model.IsFor(o, p, root) || o.Disables() && (t == resource.Cluster || t == resource.Endpoints)
		}
	case *model.AuthorizationPolicy, *model.RequestAuthentication, *model.Telemetry, *model.EnvoyFilter, *model.WasmPlugin:
		return func(p *model.Proxy, _ resource.Type) bool { return model.IsFor(o.(model.Selecting), p, root) }
	}
	return nil
}

// Listeners have these: of policies, and of the workload where they are not inboundListener.
var (
	rbacInListener = []byte(".rbac")
	inboundCluster = []byte("inbound|")
)

// ofAudience tests whether a resource of a proxy that an object concerns may be made of it.
func ofAudience(o model.Object) test {
	inListener := func(holds func(*table.Entry) bool) test {
		return func(t resource.Type, e *table.Entry) bool { return t == resource.Listener && holds(e) }
	}
	switch o := o.(type) {
	case *model.AuthorizationPolicy:
		return inListener(func(e *table.Entry) bool { return bytes.Contains(e.Resource().Value(), rbacInListener) })
	case *model.RequestAuthentication:
		return inListener(func(e *table.Entry) bool { return bytes.Contains(e.Resource().Value(), tokensInListener) })
	case *model.Telemetry:
		return inListener(func(*table.Entry) bool { return true })
	case *model.PeerAuthentication:
		return func(t resource.Type, e *table.Entry) bool {
			inbound := e.Name == inboundListener || bytes.Contains(e.Resource().Value(), inboundCluster)
			return t == resource.Listener && inbound || t == resource.Endpoints && o.Disables()
		}
	case *model.WasmPlugin:
		name := "/wasmplugin/" + o.Namespace + "." + o.Name
		return func(t resource.Type, e *table.Entry) bool {
			return t == resource.Listener && mentions(e, []byte(name)) || t == resource.Extension && strings.Contains(e.Name, name)
		}
	case *model.Sidecar:
		return func(resource.Type, *table.Entry) bool { return true }
	}
	return nil
}
