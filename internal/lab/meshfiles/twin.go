package meshfiles

import (
	"net/netip"
	"slices"
	"strings"
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

// aside has documents of the mesh's namespace be in Aside, where they stay.
func aside(text string) string {
	text = strings.ReplaceAll(text, "namespace: "+Namespace, "namespace: "+Aside+`, annotations: {networking.istio.io/exportTo: "."}`)
	if strings.Contains(text, "networking.istio.io/v1\n") {
		text = strings.ReplaceAll(text, "\nspec:\n", "\nspec:\n  exportTo: [\".\"]\n")
	}
	return text
}
