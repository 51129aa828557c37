package server

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// idForm is the form of a node ID, for error messages.
const idForm = `"<sidecar|router>~<IP address>~<pod>.<namespace>~<namespace>.svc.<cluster domain>"`

// Bounds of a node. Real ones stay far below them: Envoy's own part, mostly its list of extensions, has
// 61 KB, and Kubernetes bounds names to 253 bytes. Only a part of a node is kept.
const (
	maxNode    = 256 << 10 // bytes
	maxKept    = 64 << 10  // bytes of labels and of metadata with text values
	maxID      = 1 << 10   // bytes
	maxName    = 253       // bytes of a name, namespace or service account
	maxLabels  = 1024
	maxIPs     = 256
	longestIPs = 64 * maxIPs // bytes of INSTANCE_IPS
)

// parseNode returns the proxy that the node of a stream's first request describes. userAgent is the
// program's name ("envoy").
func parseNode(b []byte) (p *model.Proxy, userAgent string, err error) {
	if len(b) == 0 {
		return nil, "", status.Errorf(codes.InvalidArgument, "the first request of a stream must have a node, with the id %s", idForm)
	}
	if len(b) > maxNode {
		return nil, "", Invalid("node: it has %d bytes: the limit is %d", len(b), maxNode)
	}
	var n corev3.Node
	if err := proto.Unmarshal(b, &n); err != nil {
		return nil, "", status.Errorf(codes.InvalidArgument, "node: %v", err)
	}
	if p, err = ParseID(n.Id); err != nil {
		return nil, "", err
	}
	if err := fillNode(p, &n); err != nil {
		return nil, "", err
	}
	return p, n.UserAgentName, nil
}

// ProxyOf returns the proxy that a node describes.
func ProxyOf(n *corev3.Node) (*model.Proxy, error) {
	p, err := ParseID(n.GetId())
	if err != nil {
		return nil, err
	}
	return p, fillNode(p, n)
}

// fillNode applies what a node has beside its id.
func fillNode(p *model.Proxy, n *corev3.Node) error {
	p.Cluster = n.Cluster
	if l := n.Locality; l != nil {
		p.Locality = model.Locality{Region: l.Region, Zone: l.Zone, Subzone: l.SubZone}
	}
	if err := fillMetadata(p, n.Metadata.GetFields()); err != nil {
		return Invalid("node %s: %v", p, err)
	}
	p.EnvoyVersion, p.NoShards = buildVersion(n), !supportsShards(n.Extensions)
	return nil
}

// buildVersion returns the version of the proxy, "1.40.0"; empty if it sends none.
func buildVersion(n *corev3.Node) string {
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.MajorNumber, v.MinorNumber, v.Patch)
	}
	return n.GetUserAgentVersion()
}

// shardExtensions are the extensions of Envoy that compute the route shard of a request and select
// a scope by it. Envoy is built with or without them.
var shardExtensions = []string{"envoy.formatter.cel", "envoy.http.early_header_mutation.header_mutation"}

// supportsShards reports whether an Envoy with these extensions accepts listeners that use route
// shards. Without a list, its release decides.
func supportsShards(has []*corev3.Extension) bool {
	found := 0
	for _, e := range has {
		if !e.Disabled && slices.Contains(shardExtensions, e.Name) {
			found++
		}
	}
	return len(has) == 0 || found == len(shardExtensions)
}

// ParseID returns the proxy that a node ID describes.
func ParseID(id string) (*model.Proxy, error) {
	p, err := parseID(id)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "node id %q: %v; expected %s", ShortID(id), err, idForm)
	}
	return p, nil
}

func parseID(id string) (*model.Proxy, error) {
	if len(id) > maxID {
		return nil, fmt.Errorf("it has %d bytes, and the limit is %d", len(id), maxID)
	}
	parts := strings.Split(id, "~")
	if len(parts) != 4 {
		return nil, fmt.Errorf("it has %d parts separated by ~ instead of 4", len(parts))
	}
	typ := model.ProxyType(parts[0])
	if typ != model.ProxySidecar && typ != model.ProxyRouter {
		return nil, fmt.Errorf("the proxy type %q is neither sidecar nor router", ShortID(parts[0]))
	}
	if _, err := netip.ParseAddr(parts[1]); err != nil {
		return nil, fmt.Errorf("%q is not an IP address", ShortID(parts[1]))
	}
	dot := strings.LastIndexByte(parts[2], '.')
	if dot <= 0 || dot == len(parts[2])-1 {
		return nil, fmt.Errorf("%q is not <pod>.<namespace>", ShortID(parts[2]))
	}
	p := &model.Proxy{
		ID: id, Type: typ, IPs: []string{parts[1]},
		Name: parts[2][:dot], Namespace: parts[2][dot+1:], DNSDomain: parts[3],
	}
	return p, checkNames(p)
}

// checkNames returns an error for a name that neither an object of Kubernetes nor a host can have. Names are parts of Envoy's
// configuration, and of commands that tools offer to people.
func checkNames(p *model.Proxy) error {
	for _, n := range [...]struct{ of, name string }{{"name", p.Name}, {"namespace", p.Namespace}, {"service account", p.ServiceAccount}} {
		if len(n.name) > maxName {
			return fmt.Errorf("the %s has %d bytes, and the limit is %d", n.of, len(n.name), maxName)
		}
		if n.name != "" && !model.IsPlainName(n.name) {
			return fmt.Errorf("the %s %q may only have letters, digits, dots, hyphens and underscores, and begins with a letter or digit", n.of, ShortID(n.name))
		}
	}
	return nil
}

// IstioMetadata are the keys of Istio's node metadata that fillMetadata reads. EnvoyFilters can match any text.
var IstioMetadata = []string{
	"ANNOTATIONS", "CLUSTER_ID", "INSTANCE_IPS", "INTERCEPTION_MODE", "ISTIO_VERSION", "LABELS", "NAME", "NAMESPACE", "NETWORK", "POD_PORTS",
	"PROXY_CONFIG", "SERVICE_ACCOUNT", agentapi.MetaAutoAllocate, agentapi.MetaDNSCapture, agentapi.MetaExactBalance, agentapi.MetaHTTP10,
	agentapi.MetaUnprivileged,
}

// fillMetadata applies Istio's node metadata. Fields that it lacks keep the values of the node ID.
func fillMetadata(p *model.Proxy, m map[string]*structpb.Value) (err error) {
	text := func(key string, into *string) {
		if v := m[key].GetStringValue(); v != "" {
			*into = v
		}
	}
	text("NAMESPACE", &p.Namespace)
	text("NAME", &p.Name)
	text("SERVICE_ACCOUNT", &p.ServiceAccount)
	text("CLUSTER_ID", &p.ClusterID)
	text("NETWORK", &p.Network)
	text("ISTIO_VERSION", &p.IstioVersion)
	p.Metadata = texts(m)
	text(agentapi.MetaInstance, &p.Instance)
	p.Names = m[agentapi.MetaNames].GetBoolValue()
	p.Modules = m[agentapi.MetaModules].GetBoolValue()
	p.Files = m[agentapi.MetaFiles].GetBoolValue()
	p.Extensions = m[agentapi.MetaExtensions].GetBoolValue()
	p.Uncounted = m[agentapi.MetaUncounted].GetBoolValue()
	p.AnyWorker = m[agentapi.MetaExactBalance].GetStringValue() == "false" // Istio balances unless this is "false"
	p.Unprivileged, _ = strconv.ParseBool(m[agentapi.MetaUnprivileged].GetStringValue())
	p.DNSCapture, _ = strconv.ParseBool(m[agentapi.MetaDNSCapture].GetStringValue())
	p.HTTP10 = m[agentapi.MetaHTTP10].GetStringValue() == "1" // as in Istio
	p.AutoAllocate, _ = strconv.ParseBool(m[agentapi.MetaAutoAllocate].GetStringValue())
	if port := m[agentapi.MetaStatusPort].GetNumberValue(); port >= 1 && port <= 65535 {
		p.StatusPort = uint16(port)
	}
	if d := m["ANNOTATIONS"].GetStructValue().GetFields()[model.AnnotationOutbound].GetStringValue(); slices.Contains(model.Deliveries, d) {
		p.Delivery = model.Delivery(d)
	}
	config := m["PROXY_CONFIG"].GetStructValue().GetFields()
	p.Topology = topologyOf(config["gatewayTopology"])
	if v := config["connectionSettings"].GetStructValue(); v != nil {
		p.Connections = model.ProxyConnectionsOf(v.AsMap())
	}
	if v := config["proxyHeaders"].GetStructValue(); v != nil {
		p.Headers = model.ProxyHeadersOf(v.AsMap())
	}
	if v := m[agentapi.MetaTracing].GetStructValue(); v != nil {
		p.Tracing = model.ProxyTracingOf(v.AsMap())
	}
	p.Identity = m[agentapi.MetaSDS].GetStringValue() == "true" || byPilotAgent(m)
	var mode string
	text("INTERCEPTION_MODE", &mode)
	p.Interception = model.Interception(mode)
	if p.Interception == "" {
		p.Interception = model.InterceptRedirect
	}
	p.Labels = map[string]string{}
	for k, v := range m["LABELS"].GetStructValue().GetFields() {
		p.Labels[k] = v.GetStringValue()
	}
	p.NamedPorts = namedPorts(m["POD_PORTS"])
	if p.IPs, err = addresses(p.IPs[0], m["INSTANCE_IPS"].GetStringValue()); err != nil {
		return err
	}
	if len(p.Labels) > maxLabels {
		return fmt.Errorf("it has %d labels: the limit is %d", len(p.Labels), maxLabels)
	}
	if n := textSize(p.Labels) + textSize(p.Metadata); n > maxKept {
		return fmt.Errorf("its labels and text metadata have %d bytes: the limit is %d", n, maxKept)
	}
	return checkNames(p)
}

// byPilotAgent reports whether Istio's agent wrote the metadata. It always has certificates, and states that nowhere.
func byPilotAgent(m map[string]*structpb.Value) bool {
	return m[agentapi.MetaInstance] == nil && m["PROXY_CONFIG"].GetStructValue().GetFields()["discoveryAddress"].GetStringValue() != ""
}

// textSize returns the bytes of the keys and values of m.
func textSize(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// topologyOf parses a gatewayTopology in JSON form.
func topologyOf(v *structpb.Value) model.Topology {
	topology := v.GetStructValue()
	if topology == nil {
		return model.Topology{}
	}
	f := topology.GetFields()
	out := model.Topology{Set: true, ProxyProtocol: f["proxyProtocol"].GetStructValue() != nil}
	if n := f["numTrustedProxies"].GetNumberValue(); n >= 1 && n <= math.MaxUint32 {
		out.TrustedProxies = uint32(n)
	}
	if d := f["forwardClientCertDetails"].GetStringValue(); d != "UNDEFINED" {
		out.ClientCertificates = d
	}
	return out
}

// texts returns the fields that EnvoyFilters can match. Proxies of a mesh share most keys and
// values.
func texts(m map[string]*structpb.Value) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if s := v.GetStringValue(); s != "" {
			out[unique.Make(k).Value()] = unique.Make(s).Value()
		}
	}
	return out
}

// addresses returns the address of the node ID and those of a comma-separated list.
func addresses(first, list string) ([]string, error) {
	if len(list) > longestIPs {
		return nil, fmt.Errorf("INSTANCE_IPS has %d bytes: the limit is %d", len(list), longestIPs)
	}
	out := []string{first}
	for a := range strings.SplitSeq(list, ",") {
		a = strings.TrimSpace(a)
		switch {
		case a == "" || a == first:
		case !model.IsIP(a):
			return nil, fmt.Errorf("INSTANCE_IPS: %q is not an IP address", ShortID(a))
		default:
			out = append(out, a)
		}
	}
	if len(out) > maxIPs {
		return nil, fmt.Errorf("it has %d IP addresses: the limit is %d", len(out), maxIPs)
	}
	return out, nil
}

// namedPorts parses POD_PORTS: a list, or a list in a string, as Istio's agent sends it. As in Kubernetes, a name means its first TCP port.
func namedPorts(v *structpb.Value) map[string]uint32 {
	if s := v.GetStringValue(); s != "" {
		list := &structpb.Value{}
		if list.UnmarshalJSON([]byte(s)) != nil {
			return nil
		}
		v = list
	}
	var out map[string]uint32
	for _, e := range v.GetListValue().GetValues() {
		f := e.GetStructValue().GetFields()
		name, port := f["name"].GetStringValue(), f["containerPort"].GetNumberValue()
		if protocol := f["protocol"].GetStringValue(); name == "" || port < 1 || port > 65535 || protocol != "" && protocol != "TCP" || out[name] != 0 {
			continue
		}
		if out == nil {
			out = map[string]uint32{}
		}
		out[name] = uint32(port)
	}
	return out
}
