package routes

import (
	"fmt"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
)

// mesh is the virtual hosts of one route configuration as the mesh generates them, and
// which version of each is the newest.
type mesh struct {
	versions  []int // by service
	wildcards int
}

const (
	routeConfig = "80"       // Istio's name: the port
	versionName = "x-routed" // response header that tells which route was taken
	namespaces  = 50
	wildcards   = 4
	fallback    = "allow_any"
	upstreamOf  = "upstream" // the one cluster
)

func newMesh(services int) *mesh {
	return &mesh{versions: make([]int, services), wildcards: wildcards}
}

// host of service i, its short form with the namespace.
func host(i int) string { return fmt.Sprintf("svc-%d.ns-%d", i, i%namespaces) }

// domains of service i, as those that Istio generates for another namespace's service.
func domains(i int) []string {
	h := host(i)
	return []string{h + ".svc.cluster.local", h, h + ".svc", fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)}
}

// routed is what the answer's header says.
func (m *mesh) routed(i int) string {
	return "svc-" + strconv.Itoa(i) + "/" + strconv.Itoa(m.versions[i])
}

// service makes the virtual host of service i in a route configuration.
func (m *mesh) service(i int, routeConfig string) (*routev3.VirtualHost, error) {
	name := host(i) + ".svc.cluster.local:80"
	return virtualHost(routeConfig, name, domains(i), m.routed(i))
}

// others makes the virtual hosts that every bucket must have: those of wildcards, and the
// one for unknown hosts.
func (m *mesh) others(routeConfig string) ([]*routev3.VirtualHost, error) {
	list := []*routev3.VirtualHost{}
	for i := range m.wildcards {
		domain := fmt.Sprintf("*.wild-%d.example.com", i)
		v, err := virtualHost(routeConfig, domain+":80", []string{domain}, "wild-"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	v, err := virtualHost(routeConfig, fallback, []string{"*"}, fallback)
	return append(list, v), err
}

func virtualHost(routeConfig, name string, domains []string, routed string) (*routev3.VirtualHost, error) {
	out, _, err := route.VirtualHost(&ir.VirtualHost{
		RouteConfig: routeConfig, Name: name, Domains: domains, IncludeAttempts: true,
		Routes: []ir.Route{{
			Name: "default", Operation: name + "/*",
			Backends: []ir.Backend{{Cluster: upstreamOf, Weight: 1}},
			Retry:    &model.Retry{Attempts: 2},
			Headers:  model.Headers{Response: model.HeaderOps{Set: []model.HeaderValue{{Name: versionName, Value: routed}}}},
		}},
	})
	return out, err
}
