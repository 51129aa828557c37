package istiod

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/test/meshtest"
)

// nodeOf returns the node that Istio's agent sends for a proxy: no key is Moonsail's. host is the node of its Pod.
// It shares nothing with the metadata of sidecar/agent: both control planes are asked as by a sidecar of Istio, and a mistake in
// our agent must not change what istiod answers.
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
		"MESH_ID": "cluster.local", "ISTIO_VERSION": version.IstioAPI, "ISTIO_PROXY_SHA": "unknown", "INSTANCE_IPS": strings.Join(m.IPs, ","),
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

// sumOf returns a number that is equal for equal configurations. It does not depend on the order of resources.
func sumOf(resources []*anypb.Any) (sum uint64) {
	for _, a := range resources {
		h := fnv.New64a()
		_, _ = h.Write([]byte(a.TypeUrl)) // a hash never fails
		_, _ = h.Write(a.Value)
		sum += h.Sum64()
	}
	return sum
}

// proxyOf returns a proxy with its configuration, to compare it.
func proxyOf(p *meshtest.Proxy, domain string, resources []*anypb.Any) (*compare.Proxy, error) {
	m := p.Model(domain)
	out := &compare.Proxy{
		Name: m.String(), Gateway: m.Type == model.ProxyRouter, IPs: m.IPs, World: &simulate.World{},
		Principal: model.Identity{TrustDomain: model.DefaultTrustDomain, Namespace: m.Namespace, ServiceAccount: m.ServiceAccount}.String(),
	}
	for _, a := range resources {
		message, err := a.UnmarshalNew()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.TypeUrl, err)
		}
		out.Add(message)
	}
	return out, nil
}
