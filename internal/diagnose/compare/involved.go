package compare

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// involved are the objects that a call's resources were made from, by the part of the decision.
type involved struct{ route, cluster, service, policy, transport, tokens, telemetry []string }

// lists returns all lists, in a fixed order.
func (i *involved) lists() []*[]string {
	return []*[]string{&i.route, &i.cluster, &i.service, &i.policy, &i.transport, &i.tokens, &i.telemetry}
}

// objectsOf returns the objects of a result at a proxy: those that the resources name, and those that Moonsail's tables have.
func (p *Proxy) objectsOf(r *simulate.Result) involved {
	var out involved
	path := func(list *[]string, p string) {
		if ns, kind, name, ok := resourcename.CutConfigPath(p); ok {
			add(list, cmp.Or(string(model.KindOfConfig(kind)), kind)+"/"+ns+"/"+name)
		}
	}
	path(&out.route, r.RouteOrigin)
	for i := range r.Upstreams {
		path(&out.cluster, r.Upstreams[i].Origin)
		path(&out.cluster, r.Upstreams[i].TLSOrigin)
		out.add(p, resource.Cluster, r.Upstreams[i].Cluster)
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if d.Policy != "" {
			add(&out.policy, "AuthorizationPolicy/"+d.Policy)
		}
		for _, p := range d.Among {
			add(&out.policy, "AuthorizationPolicy/"+p)
		}
	}
	out.add(p, resource.Listener, r.Listener)
	return out
}

// add adds objects that a resource was made from, except those of which others tell more exactly which one decides.
func (i *involved) add(p *Proxy, t resource.Type, name string) {
	if p.madeFrom == nil || name == "" {
		return
	}
	lists := map[model.Kind]*[]string{
		model.KindPeerAuthentication: &i.transport, model.KindRequestAuthentication: &i.tokens, model.KindTelemetry: &i.telemetry,
		model.KindServiceEntry: &i.service, model.KindSidecar: &i.service, model.KindGateway: &i.service,
	}
	for _, k := range p.madeFrom(t, name) {
		if list := lists[k.Kind]; list != nil {
			add(list, k.String())
		}
	}
}

// and returns the objects of two decisions.
func (i involved) and(o involved) involved {
	more := o.lists()
	for n, list := range i.lists() {
		*list = union(*list, *more[n])
	}
	return i
}

// of returns the objects that decide about properties that differ.
func (i involved) of(changes []Change) []string {
	var out []string
	for _, c := range changes {
		switch c.What {
		case "answer", "server":
			out = slices.Concat(out, i.policy, i.route, i.transport, i.tokens)
		case "destination", "endpoints":
			out = slices.Concat(out, i.route, i.cluster, i.service)
		case "timeout", "retries", "fault", "mirror", "path", "host", "request headers", "response headers", "CORS":
			out = slices.Concat(out, i.route)
		case "tokens":
			out = slices.Concat(out, i.tokens)
		case "access log", "tracing":
			out = slices.Concat(out, i.telemetry)
		case "encryption", "server identity", "SNI", "certificate authority", "certificate":
			out = slices.Concat(out, i.cluster, i.service, i.transport)
		default:
			out = slices.Concat(out, i.cluster)
		}
	}
	return union(out, nil)
}
