package explain

import (
	"bytes"
	"regexp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Listeners name the AuthorizationPolicies and WasmPlugins that are in them.
var (
	policyInListener = regexp.MustCompile(`ns\[([^\]]+)\]-policy\[([^\]]+)\]-rule\[`)
	pluginInListener = regexp.MustCompile(`/wasmplugin/([a-z0-9-]+)\.([a-z0-9.-]+)`)
	tokensInListener = []byte("envoy.filters.http.jwt_authn")
)

// inboundListener is where all calls to a workload arrive.
const inboundListener = "virtualInbound"

// policies knows what selects the workloads of each namespace, by what was asked about before. It is for
// one snapshot and one goroutine.
type policies struct {
	snap *store.Snapshot
	root string // namespace of what is for all
	in   map[policyPlace][]model.Selecting
}

type policyPlace struct {
	kind      model.Kind
	namespace string
}

// behind are the objects about workloads that shape a proxy's listener, in order: those that it names, and
// of those that it does not name what selects the proxy.
func (s *policies) behind(p distribution.Part) []model.Key {
	if p.Type != resource.Listener {
		return nil
	}
	out := inText(s.snap, p, model.KindAuthorizationPolicy, policyInListener)
	out = append(out, inText(s.snap, p, model.KindWasmPlugin, pluginInListener)...)
	if p.Proxy == nil {
		return out
	}
	for _, a := range s.authentications(p) {
		out = append(out, a.Key)
	}
	for _, t := range model.EffectiveTelemetries(p.Proxy.Namespace, selecting[*model.Telemetry](s, model.KindTelemetry, p.Proxy)) {
		out = append(out, t.Key)
	}
	if p.Entry.Name == inboundListener {
		for _, a := range peerPolicies(s.snap, s.root, p.Proxy) {
			out = append(out, a.Key)
		}
	}
	return out
}

// authentications are the RequestAuthentications of a listener, in the order of their rules there.
func (s *policies) authentications(p distribution.Part) []*model.RequestAuthentication {
	if p.Proxy == nil || !bytes.Contains(p.Entry.Resource().Value(), tokensInListener) {
		return nil
	}
	return selecting[*model.RequestAuthentication](s, model.KindRequestAuthentication, p.Proxy)
}

// inText are the objects of a kind whose namespaces and names are in a resource's text.
func inText(snap *store.Snapshot, p distribution.Part, kind model.Kind, as *regexp.Regexp) []model.Key {
	var out []model.Key
	for _, m := range as.FindAllSubmatch(p.Entry.Resource().Value(), -1) {
		if k := (model.Key{Kind: kind, Namespace: string(m[1]), Name: string(m[2])}); snap.Get(k) != nil {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, model.Key.Compare)
	return slices.Compact(out)
}

// selecting are the objects of a kind that select a proxy: those of the root namespace before those of its
// own, the oldest first in each, as derive has them.
func selecting[T model.Selecting](s *policies, kind model.Kind, p *model.Proxy) []T {
	var out []T
	if p.Namespace != s.root {
		for _, o := range s.place(kind, s.root) {
			if !model.IsTargeted(o) && model.Selects(o, p.Labels) {
				out = append(out, o.(T))
			}
		}
	}
	for _, o := range s.place(kind, p.Namespace) {
		if model.Selects(o, p.Labels) {
			out = append(out, o.(T))
		}
	}
	return out
}

// place are the objects of a kind in a namespace, the oldest first.
func (s *policies) place(kind model.Kind, namespace string) []model.Selecting {
	at := policyPlace{kind, namespace}
	list, known := s.in[at]
	if known {
		return list
	}
	for o := range s.snap.All(kind) {
		if one, ok := o.(model.Selecting); ok && o.Metadata().Namespace == namespace {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b model.Selecting) int { return model.CompareAge(a, b) })
	s.in[at] = list
	return list
}
