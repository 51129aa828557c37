package routes

import (
	"fmt"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
)

// mesh has the virtual hosts of one route configuration in the form that the product generates, and the newest version
// of each.
type mesh struct {
	versions  []int // by service
	wildcards int
}

const (
	routeConfig = "80"       // Istio's name: the port
	versionName = "x-routed" // response header that names the route
	namespaces  = 50
	wildcards   = 4
	fallback    = "allow_any"
	upstreamOf  = "upstream" // the only cluster
)

func newMesh(services int) *mesh {
	return &mesh{versions: make([]int, services), wildcards: wildcards}
}

// host returns the short name with the namespace of service i.
func host(i int) string { return fmt.Sprintf("svc-%d.ns-%d", i, i%namespaces) }

// domains returns the domains that Istio generates for a service of another namespace.
func domains(i int) []string {
	h := host(i)
	return []string{h + ".svc.cluster.local", h, h + ".svc", fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)}
}

// routed returns the value of the response header for the newest version.
func (m *mesh) routed(i int) string {
	return "svc-" + strconv.Itoa(i) + "/" + strconv.Itoa(m.versions[i])
}

// service returns the virtual host of service i in a route configuration.
func (m *mesh) service(i int, routeConfig string) (*routev3.VirtualHost, error) {
	name := host(i) + ".svc.cluster.local:80"
	return virtualHost(routeConfig, name, domains(i), m.routed(i))
}

// others returns the virtual hosts that every bucket needs: those of wildcards, and the one for unknown hosts.
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
