package meshfiles

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Aside is a namespace without proxies. What is there is exported to nowhere else, so that no proxy
// of any mesh sees it: a control plane decodes and stores it, and sends nothing.
const Aside = "aside"

// Twin is the same as a change of the mesh, of objects in Aside: the documents before it and after it.
type Twin struct{ Rest, Changed string }

// EndpointTwin replaces one endpoint of as many as the first service has.
func (m *Mesh) EndpointTwin() Twin {
	name := m.Service(0)
	at := func(first netip.Addr) string {
		list := slices.Clone(m.endpoints[name])
		list[0] = first
		return aside((&Mesh{endpoints: map[string][]netip.Addr{name: list}}).serviceYAML(name))
	}
	return Twin{at(ip(freshNet, 1<<24-1)), at(ip(freshNet, 1<<24-2))}
}

// RouteTwin changes a header in a VirtualService.
func (m *Mesh) RouteTwin() Twin {
	return Twin{aside(routeYAML(m.Service(0), 1)), aside(routeYAML(m.Service(0), 2))}
}

// NewServiceTwin adds a service with one endpoint.
func (*Mesh) NewServiceTwin() Twin {
	const name = "twin"
	one := &Mesh{endpoints: map[string][]netip.Addr{name: {ip(freshNet, 1<<24-1)}}}
	return Twin{"", aside(one.serviceYAML(name))}
}

// RemovedServiceTwin removes such a service.
func (m *Mesh) RemovedServiceTwin() Twin {
	return Twin{m.NewServiceTwin().Changed, ""}
}

// RuleTwin adds a DestinationRule.
func (m *Mesh) RuleTwin() Twin { return Twin{"", aside(ruleYAML(m.Service(0), 1))} }

// StormTwin writes as many services with as many endpoints each into Aside: the changes of their endpoints are
// the twins of those of m's. RemoveServices takes them away; where it fails halfway, the place's Clear does.
func (m *Mesh) StormTwin() (*Mesh, error) {
	t := &Mesh{Shape: m.Shape, place: asidePlace{m.place}, endpoints: map[string][]netip.Addr{}, fresh: stormFresh}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range t.Services {
		name := t.Service(i)
		for range m.endpoints[name] {
			t.endpoints[name] = append(t.endpoints[name], t.freshIP())
		}
		content := t.serviceYAML(name)
		g.Go(func() error { return t.put(serviceFile(name), content) })
	}
	return t, g.Wait()
}

// stormFresh is where addresses of a storm's twins begin: no mesh has had that many.
const stormFresh = 1 << 23

// RemoveServices removes all services that have endpoints.
func (m *Mesh) RemoveServices() error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for name := range m.endpoints {
		g.Go(func() error {
			commit, err := m.place.Remove(serviceFile(name))
			if err == nil {
				err = commit()
			}
			return err
		})
	}
	clear(m.endpoints)
	return g.Wait()
}

// asidePlace has files of a mesh's namespace be in Aside, beside those of the mesh itself. Clear removes both.
type asidePlace struct{ Place }

// Stage implements Place.
func (p asidePlace) Stage(name, content string) (commit func() error, err error) {
	return p.Place.Stage(Aside+"-"+name, aside(content))
}

// Remove implements Place.
func (p asidePlace) Remove(name string) (commit func() error, err error) {
	return p.Place.Remove(Aside + "-" + name)
}

// aside has documents of the mesh's namespace be in Aside, where they stay.
func aside(text string) string {
	text = strings.ReplaceAll(text, "namespace: "+Namespace, "namespace: "+Aside+`, annotations: {networking.istio.io/exportTo: "."}`)
	if strings.Contains(text, "networking.istio.io/v1\n") {
		text = strings.ReplaceAll(text, "\nspec:\n", "\nspec:\n  exportTo: [\".\"]\n")
	}
	return text
}
