package compare

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// properties are what is compared, in the order in which users read it: those of package outcome, and more about security.
var properties = slices.Concat(outcome.Properties, []string{"server identity", "SNI", "certificate authority", "certificate", "hash", "tunnel", "tokens", "access log", "tracing"})

// secured adds whom the proxy accepts as the server of a call, and how endpoints are chosen by hash.
func (f *followed) secured(r *simulate.Result) {
	each := map[string][]string{}
	for i := range r.Upstreams {
		t := r.Upstreams[i].TLS
		if t == nil || !slices.ContainsFunc(r.Upstreams[i].Endpoints, func(e simulate.Endpoint) bool { return e.Percent > 0 && !e.Plain }) {
			continue
		}
		for property, text := range map[string]string{
			"server identity": strings.Join(t.SANs, ", "), "SNI": t.SNI, "certificate authority": t.CA, "certificate": t.Cert,
		} {
			if text != "" && !slices.Contains(each[property], text) {
				each[property] = append(each[property], text)
			}
		}
	}
	for property, texts := range each {
		slices.Sort(texts)
		f.Set(property, strings.Join(texts, "; "))
	}
	f.Set("hash", strings.Join(r.Hash, ", "))
	f.Set("tunnel", r.Tunnel)
}

// involved are the objects that a call's resources were made from, by the part of the decision.
type involved struct{ route, cluster, policy []string }

// objectsOf returns the objects of a result.
func objectsOf(r *simulate.Result) involved {
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
	return out
}

// and returns the objects of two decisions.
func (i involved) and(o involved) involved {
	return involved{union(i.route, o.route), union(i.cluster, o.cluster), union(i.policy, o.policy)}
}

// of returns the objects that decide about properties that differ.
func (i involved) of(changes []Change) []string {
	var out []string
	for _, c := range changes {
		switch c.What {
		case "answer":
			out = slices.Concat(out, i.policy, i.route)
		case "server":
			out = slices.Concat(out, i.policy)
		case "destination", "endpoints":
			out = slices.Concat(out, i.route, i.cluster)
		case "timeout", "retries", "fault", "mirror", "path", "host", "request headers", "response headers", "CORS":
			out = slices.Concat(out, i.route)
		default:
			out = slices.Concat(out, i.cluster)
		}
	}
	return union(out, nil)
}
