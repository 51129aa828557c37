package modelcheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

func cmpKey(a, b model.Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// truth is the model: the objects that exist, and what follows from them without Istio's rules.
type truth struct {
	objects map[model.Key]model.Object
	// deny are the names of the model's policies: each denies a port to all workloads of the mesh. A name is used once.
	deny map[string]bool
	made int // policies so far
}

func newTruth() *truth {
	return &truth{objects: map[model.Key]model.Object{}, deny: map[string]bool{}}
}

// denyPolicy makes the next policy of the model.
func (t *truth) denyPolicy(version string) *model.AuthorizationPolicy {
	t.made++
	return &model.AuthorizationPolicy{
		Meta:   model.Meta{Key: model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "istio-system", Name: fmt.Sprintf("deny-%d", t.made)}, ResourceVersion: version},
		Action: model.AuthorizeDeny,
		Rules: []model.AuthorizationRule{{To: []model.AuthorizationMatch{{{
			Attribute: model.AttributeDestinationPort, Values: []string{"6666"},
		}}}}},
	}
}

// hosts returns the hosts that objects define, and the namespaces of these objects.
func (t *truth) hosts() map[string][]string {
	out := map[string][]string{}
	add := func(h model.Host, ns string) {
		if !slices.Contains(out[string(h)], ns) {
			out[string(h)] = append(out[string(h)], ns)
		}
	}
	for _, o := range t.objects {
		switch o := o.(type) {
		case *model.Service:
			add(o.Hostname, o.Namespace)
		case *model.ServiceEntry:
			for _, h := range o.Hosts {
				add(h, o.Namespace)
			}
		}
	}
	return out
}

// addresses returns the addresses of workloads by namespace: no endpoint may have another one.
func (t *truth) addresses() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	add := func(ns string, list ...string) {
		if out[ns] == nil {
			out[ns] = map[string]bool{}
		}
		for _, a := range list {
			out[ns][a] = true
		}
	}
	for _, o := range t.objects {
		switch o := o.(type) {
		case *model.EndpointSlice:
			for _, m := range o.Members {
				add(o.Namespace, m.Addresses...)
			}
		case *model.Workload:
			add(o.Namespace, o.Addresses...)
		case *model.ServiceEntry:
			for _, e := range o.Template.Inline {
				add(o.Namespace, e.Address)
			}
		}
	}
	return out
}

// hostOf returns the host of an outbound cluster; empty: it is another cluster.
func hostOf(cluster string) string {
	parts := strings.Split(cluster, "|")
	if len(parts) != 4 || parts[0] != "outbound" {
		return ""
	}
	return parts[3]
}

// check returns how what an Envoy has contradicts the objects that exist. The Envoy must be up to date. Resources in kept are in their
// last valid version.
func (t *truth) check(e *envoy, kept map[string]bool) error {
	hosts, addresses := t.hosts(), t.addresses()
	for n := range e.has[cds] {
		if h := hostOf(n); h != "" && hosts[h] == nil && !e.refuses() && !kept[cds.String()+" "+n] {
			return fmt.Errorf("cluster %s exists, and no object defines its host", n)
		}
	}
	for n, r := range e.has[eds] {
		h := hostOf(n)
		if h == "" || kept[eds.String()+" "+n] {
			continue
		}
		for _, a := range r.addresses {
			if !slices.ContainsFunc(hosts[h], func(ns string) bool { return addresses[ns][a] }) && !e.refuses() {
				return fmt.Errorf("endpoints %s have address %s, which no workload of %v has", n, a, hosts[h])
			}
		}
	}
	for n, l := range e.has[lds] {
		for _, p := range l.denies {
			if !t.deny[p] && e.refused[lds][n] == nil {
				return fmt.Errorf("listener %s enforces policy %s, which does not exist", n, p)
			}
		}
		if n != "virtualInbound" || e.refused[lds][n] != nil {
			continue
		}
		for p := range t.deny {
			if !slices.Contains(l.denies, p) {
				return fmt.Errorf("listener %s does not enforce policy %s", n, p)
			}
		}
	}
	return nil
}
