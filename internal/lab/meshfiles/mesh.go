// Package meshfiles writes a mesh as a directory of YAML, as large as one likes, and
// changes it one file at a time. It knows what the mesh is to look like at any time, so
// that what proxies hold can be compared with it.
package meshfiles

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/lab/fleet"
)

// Shape is the size of a mesh.
type Shape struct {
	Services int `json:"services"`
	Proxies  int `json:"proxies"` // sidecars of the services' pods, one after the other
	// Bystanders are sidecars in a namespace whose Sidecar resource lets them see
	// nothing else: no change concerns them.
	Bystanders int `json:"bystanders,omitempty"`
	// Seen, if not 0: the proxies are in namespaces of their own, whose Sidecar resources
	// let them see the first so many services.
	Seen int `json:"seen,omitempty"`
	// Replicas are the endpoints of each service; 0: one for each of its proxies.
	Replicas int `json:"replicas,omitempty"`
}

// Names and ports.
const (
	Namespace = "mesh"
	apart     = "apart"
	teams     = 20 // namespaces of proxies that see few services
	Port      = 80
)

// Mesh is a directory with a mesh. It belongs to one goroutine.
type Mesh struct {
	Shape
	Dir string // what the control plane reads

	staging   string // beside Dir: files are written here, and renamed
	endpoints map[string][]netip.Addr
	fresh     uint32 // number of the next thing that never was before
}

// New makes the directories dir/mesh and dir/staging and writes the mesh.
func New(dir string, s Shape) (*Mesh, error) {
	return NewAt(filepath.Join(dir, "mesh"), filepath.Join(dir, "staging"), s)
}

// NewAt writes the mesh into dir, which must be empty or not there. staging must be on
// the same file system.
func NewAt(dir, staging string, s Shape) (*Mesh, error) {
	m := &Mesh{Shape: s, Dir: dir, staging: staging, endpoints: map[string][]netip.Addr{}}
	for _, d := range []string{dir, staging} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if list, err := os.ReadDir(dir); err != nil {
		return nil, err
	} else if len(list) > 0 {
		return nil, fmt.Errorf("%s is not empty: the lab writes a mesh of its own into it", dir)
	}
	return m, m.write()
}

// Service is the name of the i-th service.
func (m *Mesh) Service(i int) string { return fmt.Sprintf("svc-%05d", i) }

// Host is the name of a service in the cluster.
func Host(service string) string { return service + "." + Namespace + ".svc.cluster.local" }

// ClusterName is Istio's name of a service's cluster, and of its endpoints.
func ClusterName(service string) string { return fmt.Sprintf("outbound|%d||%s", Port, Host(service)) }

// VirtualHostName is the name of a service's virtual host as a resource.
func VirtualHostName(service string) string {
	return fmt.Sprintf("%s/%s:%d", RouteConfigName, Host(service), Port)
}

// RouteConfigName is the name of the route configuration of all services.
var RouteConfigName = fmt.Sprint(Port)

// Endpoints are the addresses of all services.
func (m *Mesh) Endpoints() map[string][]netip.Addr { return m.endpoints }

func (m *Mesh) write() error {
	for i := range m.Services {
		name := m.Service(i)
		m.endpoints[name] = m.pods(i)
		if err := errors.Join(
			m.put(serviceFile(name), m.serviceYAML(name)),
			m.put(routeFile(name), routeYAML(name, 0)),
		); err != nil {
			return err
		}
	}
	if m.Bystanders > 0 {
		if err := m.put("apart.yaml", sidecarYAML(apart, "./*")); err != nil {
			return err
		}
	}
	return m.writeTeams()
}

func (m *Mesh) writeTeams() error {
	if m.Seen == 0 {
		return nil
	}
	var hosts []string
	for i := range min(m.Seen, m.Services) {
		hosts = append(hosts, Namespace+"/"+Host(m.Service(i)))
	}
	for i := range teams {
		if err := m.put(team(i)+".yaml", sidecarYAML(team(i), hosts...)); err != nil {
			return err
		}
	}
	return nil
}

func team(i int) string { return fmt.Sprintf("team-%02d", i%teams) }

// pods are the first addresses of a service's endpoints: its proxies' own, where it has any.
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

// freshNet is the first byte of addresses that never were before.
const freshNet = 11

func (m *Mesh) freshIP() netip.Addr { return ip(freshNet, m.next()) }

func (m *Mesh) next() uint32 {
	m.fresh++
	return m.fresh
}

func ip(first byte, n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{first, byte(n >> 16), byte(n >> 8), byte(n)})
}

// Identities are the proxies of the mesh, bystanders last; concerned tells which of them
// see the services.
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

// put writes a file and renames it into its place.
func (m *Mesh) put(name, content string) error {
	commit, err := m.stage(name, content)
	if err != nil {
		return err
	}
	return commit()
}

// stage writes a file beside the mesh; commit puts it into its place at once.
func (m *Mesh) stage(name, content string) (commit func() error, err error) {
	from, to := filepath.Join(m.staging, name), filepath.Join(m.Dir, name)
	if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
		return nil, err
	}
	return func() error { return os.Rename(from, to) }, nil
}

// Remove takes the whole mesh off the disk. Its directory stays, empty.
func (m *Mesh) Remove() error {
	files, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		err = errors.Join(err, os.Remove(filepath.Join(m.Dir, f.Name())))
	}
	return errors.Join(err, os.RemoveAll(m.staging))
}

// Sees tells whether the proxies see a service.
func (m *Mesh) Sees(service string) bool {
	return m.Seen == 0 || service < m.Service(m.Seen)
}
