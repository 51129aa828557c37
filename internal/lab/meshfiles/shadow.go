package meshfiles

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Aside is a namespace without proxies. Its objects are not exported to other namespaces, so that a control plane decodes and
// stores them, but sends nothing to proxies.
const Aside = "aside"

// Shadow is a change like one of the mesh, but of objects in Aside: the documents before and after it.
type Shadow struct{ Rest, Changed string }

// EndpointShadow replaces one endpoint of as many as the first service has.
func (m *Mesh) EndpointShadow() Shadow {
	name := m.Service(0)
	at := func(first netip.Addr) string {
		list := slices.Clone(m.endpoints[name])
		list[0] = first
		return aside((&Mesh{endpoints: map[string][]netip.Addr{name: list}}).serviceYAML(name))
	}
	return Shadow{at(ip(freshNet, 1<<24-1)), at(ip(freshNet, 1<<24-2))}
}

// RouteShadow changes a header in a VirtualService.
func (m *Mesh) RouteShadow() Shadow {
	return Shadow{aside(routeYAML(m.Service(0), 1)), aside(routeYAML(m.Service(0), 2))}
}

// NewServiceShadow adds a service with one endpoint.
func (*Mesh) NewServiceShadow() Shadow {
	const name = "shadow"
	one := &Mesh{endpoints: map[string][]netip.Addr{name: {ip(freshNet, 1<<24-1)}}}
	return Shadow{"", aside(one.serviceYAML(name))}
}

// RemovedServiceShadow removes such a service.
func (m *Mesh) RemovedServiceShadow() Shadow {
	return Shadow{m.NewServiceShadow().Changed, ""}
}

// RuleShadow adds a DestinationRule.
func (m *Mesh) RuleShadow() Shadow { return Shadow{"", aside(ruleYAML(m.Service(0), 1))} }

// StormShadow writes the same number of services and endpoints into Aside. Changes of their endpoints are the shadows of
// changes in m. RemoveServices removes them; after an error in it, Clear of the place does.
func (m *Mesh) StormShadow() (*Mesh, error) {
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

// stormFresh is the first address of a storm's shadows, beyond those of any mesh.
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

// asidePlace writes files of a mesh's namespace into Aside, next to the mesh itself. Clear removes both.
type asidePlace struct{ Place }

// Stage implements Place.
func (p asidePlace) Stage(name, content string) (commit func() error, err error) {
	return p.Place.Stage(Aside+"-"+name, aside(content))
}

// Remove implements Place.
func (p asidePlace) Remove(name string) (commit func() error, err error) {
	return p.Place.Remove(Aside + "-" + name)
}

// aside moves documents from the mesh's namespace to Aside, and does not export them.
func aside(text string) string {
	text = strings.ReplaceAll(text, "namespace: "+Namespace, "namespace: "+Aside+`, annotations: {networking.istio.io/exportTo: "."}`)
	if strings.Contains(text, "networking.istio.io/v1\n") {
		text = strings.ReplaceAll(text, "\nspec:\n", "\nspec:\n  exportTo: [\".\"]\n")
	}
	return text
}
