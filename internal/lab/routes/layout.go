package routes

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Type URL of scopes; package resource has the others.
const scopeURL = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"

// item is a resource; a nil message removes it.
type item struct {
	url, name string
	message   proto.Message
}

// layout is a way in which Envoy has the virtual hosts of one listener.
type layout interface {
	// manage sets the routes of the connection manager.
	manage(m *mesh, out *hcmv3.HttpConnectionManager) error
	// all returns the resources besides the listener.
	all(m *mesh) ([]item, error)
	// changed returns the resources to send after service i changed.
	changed(m *mesh, i int) ([]item, error)
}

// whole is a single route configuration by RDS that contains everything.
type whole struct{ hosts []*routev3.VirtualHost }

func (*whole) manage(_ *mesh, out *hcmv3.HttpConnectionManager) error {
	out.RouteSpecifier = byRDS(routeConfig)
	return nil
}

func (w *whole) all(m *mesh) (out []item, err error) {
	w.hosts, err = every(m, routeConfig)
	return w.joined(), err
}

func (w *whole) joined() []item {
	rc := route.Config(ir.RouteConfig{Name: routeConfig}, false)
	rc.VirtualHosts = w.hosts
	return []item{{resource.RouteConfigURL, routeConfig, rc}}
}

func (w *whole) changed(m *mesh, i int) (_ []item, err error) {
	at := len(w.hosts) - len(m.versions) + i
	w.hosts[at], err = m.service(i, routeConfig)
	return w.joined(), err
}

// apart is a route configuration whose virtual hosts come by VHDS, as in the product.
type apart struct{}

func (apart) manage(_ *mesh, out *hcmv3.HttpConnectionManager) error {
	out.RouteSpecifier = byRDS(routeConfig)
	return nil
}

func (apart) all(m *mesh) ([]item, error) {
	hosts, err := every(m, routeConfig)
	return append(hostItems(hosts), shell(routeConfig)), err
}

func (apart) changed(m *mesh, i int) ([]item, error) {
	v, err := m.service(i, routeConfig)
	return hostItems([]*routev3.VirtualHost{v}), err
}

// perHost is SRDS with a scope for each domain, which contains its route configuration. The form of a host decides
// whether it belongs to the mesh. A host of that form that does not exist has no scope, and so no route.
type perHost struct{}

// meshHost matches the form of the mesh's names.
const meshHost = `request.host.matches('^[^.:]+[.]ns-[0-9]+([.]svc([.]cluster[.]local)?)?(:[0-9]+)?$') ? request.host : '*'`

func (perHost) manage(_ *mesh, out *hcmv3.HttpConnectionManager) error {
	return scoped(out, "%CEL("+meshHost+")%", ":", &hcmv3.ScopedRoutes{
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: ads}},
	})
}

func (p perHost) all(m *mesh) ([]item, error) {
	rest, err := m.others("*")
	out := []item{scope("*", rest)}
	for i := range m.versions {
		if err != nil {
			return nil, err
		}
		var list []item
		list, err = p.changed(m, i)
		out = append(out, list...)
	}
	return out, err
}

func (perHost) changed(m *mesh, i int) (out []item, err error) {
	for _, d := range domains(i)[:3] { // addresses have the form of unknown hosts
		v, err := m.service(i, d)
		if err != nil {
			return nil, err
		}
		v.Domains = []string{"*"}
		out = append(out, scope(d, []*routev3.VirtualHost{v}))
	}
	return out, nil
}

func scope(key string, hosts []*routev3.VirtualHost) item {
	rc := route.Config(ir.RouteConfig{Name: routeConfig + "~" + key}, false)
	rc.VirtualHosts = hosts
	s := &routev3.ScopedRouteConfiguration{Name: rc.Name, Key: scopeKey(key), RouteConfiguration: rc}
	return item{scopeURL, s.Name, s}
}

func scopeKey(key string) *routev3.ScopedRouteConfiguration_Key {
	return &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
		Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: key},
	}}}
}

// every returns all virtual hosts of a single route configuration.
func every(m *mesh, routeConfig string) ([]*routev3.VirtualHost, error) {
	out, err := m.others(routeConfig)
	for i := range m.versions {
		v, e := m.service(i, routeConfig)
		if err = errOr(err, e); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, err
}

func errOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func hostItems(hosts []*routev3.VirtualHost) []item {
	out := make([]item, len(hosts))
	for i, v := range hosts {
		out[i] = item{resource.VirtualHostURL, v.GetName(), v}
	}
	return out
}

func shell(name string) item {
	return item{resource.RouteConfigURL, name, route.Config(ir.RouteConfig{Name: name}, true)}
}

// ads has no limit for the first response, as in agents: 5000 clusters take a busy machine longer than Envoy's 15
// seconds.
var ads = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	ResourceApiVersion:    corev3.ApiVersion_V3,
	InitialFetchTimeout:   durationpb.New(0),
}

func byRDS(name string) *hcmv3.HttpConnectionManager_Rds {
	return &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads, RouteConfigName: name}}
}
