package istiod

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/meshtest"
)

// Types in the order in which Envoy asks for them.
const (
	typePrefix = "type.googleapis.com/"
	typeCDS    = typePrefix + "envoy.config.cluster.v3.Cluster"
	typeEDS    = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	typeLDS    = typePrefix + "envoy.config.listener.v3.Listener"
	typeRDS    = typePrefix + "envoy.config.route.v3.RouteConfiguration"
	typeECDS   = typePrefix + "envoy.config.core.v3.TypedExtensionConfig"
)

// istioVersion is the version of the agent whose node proxies send.
const istioVersion = "1.31.0"

// nodeOf returns the node that Istio's agent sends for a proxy: no key is Moonsail's. host is the node of its Pod.
func nodeOf(p *meshtest.Proxy, domain, host string) *corev3.Node {
	m := p.Model(domain)
	labels := map[string]any{}
	for k, v := range p.Labels {
		labels[k] = v
	}
	app := p.Labels["app"]
	if app == "" {
		app = "istio-proxy"
	}
	config := map[string]any{
		"binaryPath": "/usr/local/bin/envoy", "concurrency": 2, "configPath": "./etc/istio/proxy", "controlPlaneAuthPolicy": "MUTUAL_TLS",
		"discoveryAddress": "istiod.istio-system.svc:15012", "drainDuration": "45s", "proxyAdminPort": 15000,
		"serviceCluster": app + "." + p.Namespace, "statNameLength": 189, "statusPort": 15020, "terminationDrainDuration": "5s",
	}
	if p.Topology.Set {
		config["gatewayTopology"] = map[string]any{"numTrustedProxies": p.Topology.TrustedProxies}
	}
	if p.Connections != nil {
		config["connectionSettings"] = p.Connections
	}
	meta := map[string]any{
		"NAME": p.Name, "NAMESPACE": p.Namespace, "SERVICE_ACCOUNT": p.ServiceAccount, "WORKLOAD_NAME": p.Name, "CLUSTER_ID": "Kubernetes",
		"MESH_ID": "cluster.local", "ISTIO_VERSION": istioVersion, "ISTIO_PROXY_SHA": "unknown", "INSTANCE_IPS": strings.Join(m.IPs, ","),
		"INTERCEPTION_MODE": string(p.Interception), "LABELS": labels, "POD_PORTS": podPorts(p.Ports), "PROXY_CONFIG": config,
		"ENVOY_PROMETHEUS_PORT": 15090, "ENVOY_STATUS_PORT": 15021, "PILOT_SAN": []any{"istiod.istio-system.svc"},
		"OWNER": "kubernetes://apis/apps/v1/namespaces/" + p.Namespace + "/deployments/" + p.Name, "NODE_NAME": host,
	}
	if p.DNSCapture {
		meta["DNS_CAPTURE"] = "true"
	}
	plain, err := json.Marshal(meta)
	fields := &structpb.Struct{}
	if err == nil {
		err = fields.UnmarshalJSON(plain)
	}
	if err != nil {
		panic(fmt.Sprintf("metadata of %s: %v", p.Name, err)) // it consists of plain values
	}
	node := &corev3.Node{Id: m.ID, Cluster: app + "." + p.Namespace, Metadata: fields, UserAgentName: "envoy"}
	if m.Locality != (model.Locality{}) {
		node.Locality = &corev3.Locality{Region: m.Locality.Region, Zone: m.Locality.Zone, SubZone: m.Locality.Subzone}
	}
	return node
}

// podPorts returns named container ports as Istio's agent sends them: JSON in a string.
func podPorts(named map[string]uint32) string {
	ports := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		ports = append(ports, map[string]any{"name": name, "containerPort": named[name], "protocol": "TCP"})
	}
	text, err := json.Marshal(ports)
	if err != nil {
		panic(err) // it consists of plain values
	}
	return string(text)
}

// config is what a proxy gets from one control plane.
type config struct {
	resources map[string][]*anypb.Any // by type URL
	sum       uint64                  // equal for equal configurations
}

// fetcher is one stream of a proxy.
type fetcher struct {
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node   *corev3.Node
	config *config
}

// fetch connects as a proxy and reads its complete configuration.
func fetch(ctx context.Context, conn *grpc.ClientConn, node *corev3.Node) (*config, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	f := &fetcher{stream: stream, node: node, config: &config{resources: map[string][]*anypb.Any{}}}
	if err := f.all(); err != nil {
		return nil, err
	}
	f.config.hash()
	return f.config, nil
}

func (f *fetcher) all() error {
	if err := f.ask(typeCDS, nil); err != nil {
		return err
	}
	names, err := f.config.endpointNames()
	if err == nil && len(names) > 0 {
		err = f.ask(typeEDS, names)
	}
	if err == nil {
		err = f.ask(typeLDS, nil)
	}
	if err != nil {
		return err
	}
	routes, extensions, err := f.config.listenerNeeds()
	if err == nil && len(routes) > 0 {
		err = f.ask(typeRDS, routes)
	}
	if err == nil && len(extensions) > 0 {
		err = f.ask(typeECDS, extensions)
	}
	return err
}

// ask subscribes to a type, waits for its response, and ACKs what arrives meanwhile.
func (f *fetcher) ask(typ string, names []string) error {
	if err := f.stream.Send(&discoveryv3.DiscoveryRequest{Node: f.node, TypeUrl: typ, ResourceNames: names}); err != nil {
		return err
	}
	for {
		resp, err := f.stream.Recv()
		if err != nil {
			return fmt.Errorf("%s: %w", typ, err)
		}
		f.config.resources[resp.TypeUrl] = resp.Resources
		ack := &discoveryv3.DiscoveryRequest{TypeUrl: resp.TypeUrl, VersionInfo: resp.VersionInfo, ResponseNonce: resp.Nonce}
		if resp.TypeUrl == typ {
			ack.ResourceNames = names
			return f.stream.Send(ack)
		}
	}
}

// endpointNames returns the names that EDS has for the clusters.
func (c *config) endpointNames() ([]string, error) {
	var out []string
	for _, a := range c.resources[typeCDS] {
		m := &clusterv3.Cluster{}
		if err := a.UnmarshalTo(m); err != nil {
			return nil, err
		}
		if m.GetType() != clusterv3.Cluster_EDS {
			continue
		}
		name := m.GetEdsClusterConfig().GetServiceName()
		if name == "" {
			name = m.Name
		}
		out = append(out, name)
	}
	return out, nil
}

// listenerNeeds returns the route configurations and the extensions that listeners name.
func (c *config) listenerNeeds() (routes, extensions []string, err error) {
	needed, more := map[string]bool{}, map[string]bool{}
	for _, a := range c.resources[typeLDS] {
		l := &listenerv3.Listener{}
		if err := a.UnmarshalTo(l); err != nil {
			return nil, nil, err
		}
		chains := slices.Clone(l.GetFilterChains())
		if d := l.GetDefaultFilterChain(); d != nil {
			chains = append(chains, d)
		}
		for _, chain := range chains {
			for _, f := range chain.GetFilters() {
				if f.GetConfigDiscovery() != nil {
					more[f.GetName()] = true
				}
				m := &hcmv3.HttpConnectionManager{}
				if !f.GetTypedConfig().MessageIs(m) {
					continue
				}
				if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
					return nil, nil, err
				}
				if name := m.GetRds().GetRouteConfigName(); name != "" {
					needed[name] = true
				}
				for _, h := range m.GetHttpFilters() {
					if h.GetConfigDiscovery() != nil {
						more[h.GetName()] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(needed)), slices.Sorted(maps.Keys(more)), nil
}

// hash computes the sum, which does not depend on the order of resources.
func (c *config) hash() {
	c.sum = 0
	for typ, list := range c.resources {
		for _, a := range list {
			h := fnv.New64a()
			_, _ = h.Write([]byte(typ)) // a hash never fails
			_, _ = h.Write(a.Value)
			c.sum += h.Sum64()
		}
	}
}

// messages returns all resources.
func (c *config) messages() ([]proto.Message, error) {
	var out []proto.Message
	for _, list := range c.resources {
		for _, a := range list {
			m, err := a.UnmarshalNew()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.TypeUrl, err)
			}
			out = append(out, m)
		}
	}
	return out, nil
}

// proxy returns the proxy with its configuration, to compare it.
func (c *config) proxy(p *meshtest.Proxy, domain string) (*compare.Proxy, error) {
	all, err := c.messages()
	if err != nil {
		return nil, err
	}
	m := p.Model(domain)
	out := &compare.Proxy{
		Name: m.String(), Gateway: m.Type == model.ProxyRouter, IPs: m.IPs, World: &simulate.World{},
		Principal: model.Identity{TrustDomain: model.DefaultTrustDomain, Namespace: m.Namespace, ServiceAccount: m.ServiceAccount}.String(),
	}
	for _, m := range all {
		out.Add(m)
	}
	return out, nil
}
