// Package meshfiles writes a mesh of any size as YAML into a directory or another place, and changes it one file at a time.
// It knows the content of the mesh at any time, so that the resources of proxies can be compared with it.
package meshfiles

import (
	"fmt"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Shape is the size of a mesh.
type Shape struct {
	Services int `json:"services"`
	Proxies  int `json:"proxies"` // sidecars of the services' pods, one after the other
	// Bystanders are sidecars in a namespace whose Sidecar resource lets them see
	// nothing else: no change concerns them.
	Bystanders int `json:"bystanders,omitempty"`
	// Seen, if not 0, puts the proxies into namespaces whose Sidecar resources let them see only that many services,
	// the first ones.
	Seen int `json:"seen,omitempty"`
	// Replicas are the endpoints of each service; 0: one for each of its proxies.
	Replicas int `json:"replicas,omitempty"`
	// ServicePort is the port of the services; 0: Port. Names of resources here are for Port.
	ServicePort int `json:"service_port,omitempty"`
}

// Names and ports.
const (
	Namespace = "mesh"
	apart     = "apart"
	teams     = 20 // namespaces of proxies that see few services
	Port      = 80
)

// Mesh is a mesh in a place. One goroutine uses it.
type Mesh struct {
	Shape

	place     Place
	endpoints map[string][]netip.Addr
	routes    map[string]uint32 // version of a service's VirtualService, the first 0; none: it has none
	rules     map[string]uint32 // connections that a service's DestinationRule allows
	fresh     uint32            // number of the next new thing
}

// Place stores a mesh as files of YAML documents: in a directory, or where a control plane reads them otherwise.
// Commits may run at the same time. A commit must return as soon as the change is made, and do nothing else.
type Place interface {
	// Stage prepares a file; commit publishes it.
	Stage(name, content string) (commit func() error, err error)
	// Remove prepares to remove a file.
	Remove(name string) (commit func() error, err error)
	// Clear removes all files.
	Clear() error
}

// atOnce is how many files are written at the same time.
const atOnce = 16

// New writes a mesh into an empty place.
func New(p Place, s Shape) (*Mesh, error) {
	m := &Mesh{Shape: s, place: p, endpoints: map[string][]netip.Addr{}, routes: map[string]uint32{}, rules: map[string]uint32{}}
	return m, m.write()
}

// Grow adds services up to the given number. Existing services do not change.
func (m *Mesh) Grow(services int) error {
	m.Services = services
	return m.write()
}

// Service is the name of the i-th service.
func (m *Mesh) Service(i int) string { return fmt.Sprintf("svc-%05d", i) }

// Host is the name of a service in the cluster.
func Host(service string) string { return service + "." + Namespace + ".svc.cluster.local" }

// ClusterName is Istio's name of a service's cluster, and of its endpoints.
func ClusterName(service string) string {
	return ir.OutboundCluster(Port, "", model.Host(Host(service)))
}

// VirtualHostName is the name of a service's virtual host as a resource.
func VirtualHostName(service string) string {
	return resourcename.VirtualHost(RouteConfigName, resourcename.HostPort(model.Host(Host(service)), Port))
}

// RouteConfigName is the name of the route configuration of all services.
var RouteConfigName = fmt.Sprint(Port)

// Endpoints are the addresses of all services.
func (m *Mesh) Endpoints() map[string][]netip.Addr { return m.endpoints }

// RouteMark is the mark of the newest version of a service's VirtualService in its routes.
func (m *Mesh) RouteMark(service string) string { return routeMark(m.routes[service]) }

// HasRoute reports whether a service has a VirtualService. One that AddService has added has none.
func (m *Mesh) HasRoute(service string) bool {
	_, has := m.routes[service]
	return has
}

// Connections are those that a service's DestinationRule allows; 0: it has none.
func (m *Mesh) Connections(service string) uint32 { return m.rules[service] }

func (m *Mesh) write() error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	put := func(name, content string) { g.Go(func() error { return m.put(name, content) }) }
	for i := range m.Services {
		name := m.Service(i)
		if m.endpoints[name] != nil {
			continue
		}
		m.endpoints[name], m.routes[name] = m.pods(i), 0
		put(serviceFile(name), m.serviceYAML(name))
		put(routeFile(name), routeYAML(name, 0))
	}
	if m.Bystanders > 0 {
		put("apart.yaml", sidecarYAML(apart, "./*"))
	}
	if m.Seen > 0 {
		var hosts []string
		for i := range min(m.Seen, m.Services) {
			hosts = append(hosts, Namespace+"/"+Host(m.Service(i)))
		}
		for i := range teams {
			put(team(i)+".yaml", sidecarYAML(team(i), hosts...))
		}
	}
	return g.Wait()
}

func (m *Mesh) put(name, content string) error {
	commit, err := m.place.Stage(name, content)
	if err == nil {
		err = commit()
	}
	return err
}

func team(i int) string { return fmt.Sprintf("team-%02d", i%teams) }

// pods returns the first addresses of a service's endpoints: its proxies', if it has any.
func (m *Mesh) pods(service int) (out []netip.Addr) {
	if m.Seen == 0 {
		for i := service; i < m.Proxies && (m.Replicas == 0 || len(out) < m.Replicas); i += m.Services {
			out = append(out, podIP(i))
		}
	}
	for len(out) < max(1, m.Replicas) {
		out = append(out, m.freshIP())
	}
	return out
}

func podIP(i int) netip.Addr { return ip(10, uint32(i)+1) }

// freshNet is the first byte of new addresses.
const freshNet = 11

func (m *Mesh) freshIP() netip.Addr { return ip(freshNet, m.next()) }

func (m *Mesh) next() uint32 {
	m.fresh++
	return m.fresh
}

func ip(first byte, n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{first, byte(n >> 16), byte(n >> 8), byte(n)})
}

// Identities returns the proxies of the mesh, bystanders last. concerned states which of them see the services.
func (m *Mesh) Identities() (ids []fleet.Identity, concerned []bool) {
	for i := range m.Proxies + m.Bystanders {
		id := fleet.Identity{IP: podIP(i).String()}
		switch {
		case i >= m.Proxies:
			id.Namespace, id.Name = apart, fmt.Sprintf("bystander-%d", i-m.Proxies)
		case m.Seen > 0:
			id.Namespace, id.Name = team(i), fmt.Sprintf("%s-%d", team(i), i)
		default:
			service := m.Service(i % m.Services)
			id.Namespace, id.Name = Namespace, fmt.Sprintf("%s-%d", service, i/m.Services)
			id.Labels = map[string]string{"app": service}
		}
		id.Class = id.Namespace + "/" + id.Labels["app"]
		ids = append(ids, id)
		concerned = append(concerned, i < m.Proxies)
	}
	return ids, concerned
}

// Sees reports whether the proxies see a service.
func (m *Mesh) Sees(service string) bool {
	return m.Seen == 0 || service < m.Service(m.Seen)
}
