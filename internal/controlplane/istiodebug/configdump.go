package istiodebug

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/nametable"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Texts that istioctl looks for.
const (
	noProxyID    = "You must provide a proxyID in the query string\n"
	notConnected = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"
)

var errNotConnected = errors.New(strings.TrimSpace(notConnected))

// proxyID returns the proxy that a request names, as distribution.Proxies names it; "": none.
func proxyID(r *http.Request) string {
	q := r.URL.Query()
	return cmp.Or(q.Get("proxyID"), q.Get("proxyid"), q.Get("proxy"))
}

// requiredProxyID is proxyID for pages about one proxy; false: the request was answered.
func requiredProxyID(w http.ResponseWriter, r *http.Request) (id string, ok bool) {
	if id = proxyID(r); id != "" {
		return id, true
	}
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write([]byte(noProxyID))
	return "", false
}

func answerNotConnected(w http.ResponseWriter) {
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(notConnected))
}

func (p *Pages) configDump(w http.ResponseWriter, r *http.Request) {
	id, ok := requiredProxyID(w, r)
	if !ok {
		return
	}
	page := strings.TrimPrefix(r.URL.Path, "/debug/")
	dump, err := p.dump(id, page == "edsz" || r.URL.Query().Has("include_eds"))
	switch {
	case errors.Is(err, errNotConnected):
		answerNotConnected(w)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if only, ok := map[string]proto.Message{"edsz": &adminv3.EndpointsConfigDump{}, "ecdsz": &adminv3.EcdsConfigDump{}}[page]; ok {
		dump.Configs = slices.DeleteFunc(dump.Configs, func(a *anypb.Any) bool { return !a.MessageIs(only) })
	}
	b, err := protojson.MarshalOptions{Multiline: true, Indent: "  ", UseProtoNames: true}.Marshal(dump)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
}

// dumped are the types of a dump.
var dumped = []resource.Type{
	resource.Cluster, resource.Endpoints, resource.Secret, resource.Listener, resource.Scope, resource.RouteConfig, resource.VHDSRouteConfig,
	resource.VirtualHost, resource.Extension,
}

// dump returns what a proxy should have, as Envoy's config dump has it: with the virtual hosts in their route
// configurations, and without private keys and registry credentials.
func (p *Pages) dump(id string, endpoints bool) (*adminv3.ConfigDump, error) {
	_, list, ok := p.Resources.Intended(id, dumped...)
	if !ok {
		return nil, errNotConnected
	}
	byType := map[resource.Type][]*anypb.Any{}
	routes := routeDump{configs: map[string]*routev3.RouteConfiguration{}, hosts: map[string][]*routev3.VirtualHost{}}
	d := dumps{listeners: &adminv3.ListenersConfigDump{}}
	for i := range list {
		packed := &anypb.Any{}
		if err := proto.Unmarshal(list[i].Entry.Resource().Any(), packed); err != nil {
			return nil, fmt.Errorf("%s %s: %w", list[i].Type, list[i].Entry.Name, err)
		}
		switch t := list[i].Type; t {
		case resource.Listener:
			d.listeners.DynamicListeners = append(d.listeners.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
				Name: list[i].Entry.Name, ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{Listener: packed, VersionInfo: list[i].Entry.Version},
			})
		case resource.RouteConfig, resource.VHDSRouteConfig, resource.VirtualHost:
			if err := routes.add(list[i].Entry.Name, packed); err != nil {
				return nil, err
			}
		default:
			byType[t] = append(byType[t], packed)
		}
	}
	var err error
	if d.routes, err = routes.dump(); err != nil {
		return nil, err
	}
	d.byType = byType
	return d.all(endpoints)
}

// dumps are the parts of a dump.
type dumps struct {
	listeners *adminv3.ListenersConfigDump
	routes    *adminv3.RoutesConfigDump
	byType    map[resource.Type][]*anypb.Any
}

// all returns the parts in istiod's order.
func (d *dumps) all(endpoints bool) (*adminv3.ConfigDump, error) {
	clusters, eds := &adminv3.ClustersConfigDump{}, &adminv3.EndpointsConfigDump{}
	secrets, extensions := &adminv3.SecretsConfigDump{}, &adminv3.EcdsConfigDump{}
	for _, r := range d.byType[resource.Cluster] {
		clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters, &adminv3.ClustersConfigDump_DynamicCluster{Cluster: r})
	}
	for _, r := range d.byType[resource.Endpoints] {
		eds.DynamicEndpointConfigs = append(eds.DynamicEndpointConfigs, &adminv3.EndpointsConfigDump_DynamicEndpointConfig{EndpointConfig: r})
	}
	for _, r := range d.byType[resource.Secret] {
		name, public, err := withoutKey(r)
		if err != nil {
			return nil, err
		}
		secrets.DynamicActiveSecrets = append(secrets.DynamicActiveSecrets, &adminv3.SecretsConfigDump_DynamicSecret{Name: name, Secret: public})
	}
	for _, r := range d.byType[resource.Extension] {
		public, err := withoutLogin(r)
		if err != nil {
			return nil, err
		}
		extensions.EcdsFilters = append(extensions.EcdsFilters, &adminv3.EcdsConfigDump_EcdsFilterConfig{EcdsFilter: public})
	}
	parts := []proto.Message{&adminv3.BootstrapConfigDump{}, clusters}
	if endpoints {
		parts = append(parts, eds)
	}
	out := &adminv3.ConfigDump{}
	for _, m := range append(parts, d.listeners, &adminv3.ScopedRoutesConfigDump{}, d.routes, secrets, extensions) {
		packed, err := anypb.New(m)
		if err != nil {
			return nil, err
		}
		out.Configs = append(out.Configs, packed)
	}
	return out, nil
}

// routeDump joins route configurations with their virtual hosts.
type routeDump struct {
	configs map[string]*routev3.RouteConfiguration
	hosts   map[string][]*routev3.VirtualHost // by route configuration
}

func (r *routeDump) add(name string, packed *anypb.Any) error {
	m, err := packed.UnmarshalNew()
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *routev3.RouteConfiguration:
		r.configs[m.Name] = m
	case *routev3.VirtualHost:
		config, _ := resourcename.CutVirtualHost(name)
		r.hosts[config] = append(r.hosts[config], m)
	}
	return nil
}

func (r *routeDump) dump() (*adminv3.RoutesConfigDump, error) {
	out := &adminv3.RoutesConfigDump{}
	names := make([]string, 0, len(r.configs))
	for n := range r.configs {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		c := r.configs[n]
		c.VirtualHosts = append(c.VirtualHosts, r.hosts[n]...)
		packed, err := anypb.New(c)
		if err != nil {
			return nil, fmt.Errorf("route configuration %s: %w", n, err)
		}
		out.DynamicRouteConfigs = append(out.DynamicRouteConfigs, &adminv3.RoutesConfigDump_DynamicRouteConfig{RouteConfig: packed})
	}
	return out, nil
}

func (p *Pages) ndsz(w http.ResponseWriter, r *http.Request) {
	id, ok := requiredProxyID(w, r)
	if !ok {
		return
	}
	_, list, ok := p.Resources.Intended(id, resource.NameTable)
	if !ok {
		answerNotConnected(w)
		return
	}
	type info struct {
		IPs       []string `json:"ips"`
		Registry  string   `json:"registry,omitempty"`
		ShortName string   `json:"shortname,omitempty"`
		Namespace string   `json:"namespace,omitempty"`
	}
	out := map[string]map[string]info{"table": {}}
	for i := range list {
		entries, err := nametable.Decode(list[i].Entry.Resource().Value())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, e := range entries {
			out["table"][e.Host] = info{e.Addresses, e.Registry, e.ShortName, e.Namespace}
		}
	}
	reply(w, out)
}
