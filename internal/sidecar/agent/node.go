package agent

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// makeNode returns what Envoy sends to the control plane about itself, in Istio's forms. The id is
// sidecar~IP~NAME.NAMESPACE~NAMESPACE.svc.DOMAIN.
func (s *settings) makeNode() bootstrap.Node {
	w := &s.Workload
	n := bootstrap.Node{
		ID: fmt.Sprintf("%s~%s~%s.%s~%s.svc.%s", s.Type, w.IPs[0],
			w.Name, w.Namespace, w.Namespace, s.Domain),
		Cluster:  s.serviceCluster(),
		Locality: s.locality(),
		Metadata: s.metadata(),
	}
	if s.bootstrapOptions().OnlyRequiredStats() {
		n.Metadata[agentapi.MetaUncounted] = true
	}
	// One worker has no connections to balance, unless the user sets otherwise.
	if _, set := n.Metadata[agentapi.MetaExactBalance]; !set && s.concurrency == 1 {
		n.Metadata[agentapi.MetaExactBalance] = "false"
	}
	return n
}

// nameInstance gives this run of the sidecar a unique name, which distinguishes it from the next run.
func (s *settings) nameInstance() {
	s.instance = rand.Text()
	s.node.Metadata[agentapi.MetaInstance] = s.instance
	s.node.Metadata[agentapi.MetaStatusPort] = s.ports.Status
}

// serviceCluster returns ProxyConfig's serviceCluster, else APP.NAMESPACE. APP is the first that is set of the labels app,
// app.kubernetes.io/name and service.istio.io/canonical-name, and the workload's name.
func (s *settings) serviceCluster() string {
	if c := s.proxyConfig.GetServiceCluster(); c != "" && c != "istio-proxy" {
		return c
	}
	w := &s.Workload
	for _, app := range []string{w.Labels["app"], w.Labels["app.kubernetes.io/name"], w.Labels["service.istio.io/canonical-name"], w.WorkloadName} {
		if app != "" {
			return app + "." + w.Namespace
		}
	}
	return "istio-proxy." + w.Namespace
}

// locality returns the configured locality, else that of the labels that Istio reads. In a label "." may replace "/".
func (s *settings) locality() model.Locality {
	w := &s.Workload
	if w.Locality != (model.Locality{}) {
		return w.Locality
	}
	for _, label := range []string{"topology.istio.io/locality", "istio-locality"} {
		if l := w.Labels[label]; l != "" {
			if !strings.Contains(l, "/") {
				l = strings.ReplaceAll(l, ".", "/")
			}
			locality := model.ParseLocality(l)
			if err := locality.Check(); err != nil {
				s.log.Warn("invalid locality in a label of the workload", "label", label, "error", err)
			}
			return locality
		}
	}
	return model.Locality{
		Region:  w.Labels["topology.kubernetes.io/region"],
		Zone:    w.Labels["topology.kubernetes.io/zone"],
		Subzone: w.Labels["topology.istio.io/subzone"],
	}
}

// metadata returns the node's metadata under Istio's names, without empty values.
func (s *settings) metadata() map[string]any {
	w := &s.Workload
	m := map[string]any{
		"LABELS":                anyMap(w.Labels),
		"ANNOTATIONS":           anyMap(w.Annotations),
		"PROXY_CONFIG":          jsonOf(s.proxyConfig),
		"ENVOY_STATUS_PORT":     s.ports.Health,
		"ENVOY_PROMETHEUS_PORT": s.ports.Prometheus,
	}
	if s.podTracing != nil {
		m[agentapi.MetaTracing] = jsonOf(s.podTracing)
	}
	if s.identified {
		m[agentapi.MetaSDS] = "true"
	}
	for name, value := range map[string]string{
		"NAME":              w.Name,
		"NAMESPACE":         w.Namespace,
		"SERVICE_ACCOUNT":   w.ServiceAccount,
		"CLUSTER_ID":        s.ClusterID,
		"MESH_ID":           s.MeshID,
		"NETWORK":           s.Network,
		"ISTIO_VERSION":     version.IstioAPI, // EnvoyFilters match it
		"INTERCEPTION_MODE": string(s.Interception),
		"INSTANCE_IPS":      strings.Join(w.IPs, ","),
		"POD_PORTS":         portsJSON(w.Ports),
		"OWNER":             w.Owner,
		"WORKLOAD_NAME":     w.WorkloadName,
		"NODE_NAME":         w.NodeName,
		"APP_CONTAINERS":    strings.Join(w.Containers, ","),
	} {
		m[name] = value
	}
	for name, value := range s.proxyConfig.GetProxyMetadata() {
		if key, ok := strings.CutPrefix(name, MetadataPrefix); ok {
			m[key] = value
		}
	}
	maps.Copy(m, s.Metadata)
	if s.capturesDNS() {
		m[agentapi.MetaDNSCapture] = "true"
	}
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil || v == "" })
	return m
}

// portsJSON returns a JSON list in a string, as Istio's sidecars send it.
func portsJSON(ports []workload.Port) string {
	if len(ports) == 0 {
		return ""
	}
	text, _ := json.Marshal(ports) // cannot fail: strings and numbers
	return string(text)
}

// jsonOf converts a message that was decoded from JSON to metadata.
func jsonOf(message proto.Message) any {
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil // impossible: the parser accepts only valid UTF-8
	}
	var m map[string]any
	_ = json.Unmarshal(text, &m)
	return m
}

func anyMap(m map[string]string) any {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Files of Linux with limits on ports.
const (
	firstFreePortFile = "/proc/sys/net/ipv4/ip_unprivileged_port_start" // of this network namespace
	capabilitiesFile  = "/proc/self/status"
)

// capNetBindService is the number of CAP_NET_BIND_SERVICE.
const capNetBindService = 10

// reportPrivileges sets the metadata UNPRIVILEGED_POD if Envoy may not listen on all ports, unless the user has set it.
func (s *settings) reportPrivileges() {
	if _, set := s.node.Metadata[agentapi.MetaUnprivileged]; set || s.Type != model.ProxySidecar || s.opensAnyPort() {
		return
	}
	s.node.Metadata[agentapi.MetaUnprivileged] = "true"
	if s.Interception == model.InterceptNone {
		s.log.Warn("Envoy may not listen on ports below 1024, so the application cannot call services on such ports without interception: "+
			"set the sysctl net.ipv4.ip_unprivileged_port_start to 0", "uid", os.Geteuid())
	}
}

// opensAnyPort reports whether Envoy may listen on ports below 1024. If that is unknown, it returns true.
func (s *settings) opensAnyPort() bool {
	from, err := os.ReadFile(firstFreePortFile)
	if n, e := strconv.Atoi(strings.TrimSpace(string(from))); err != nil || e != nil || n < model.PrivilegedPorts {
		return true
	}
	// A process of root has the capabilities of the bounding set, a process of another user those that are ambient.
	set := "CapAmb"
	if os.Geteuid() == 0 {
		set = "CapBnd"
	}
	status, err := os.ReadFile(capabilitiesFile)
	return err != nil || s.envoyUser() == nil && hasCapability(string(status), set, capNetBindService)
}

// hasCapability reports whether a set in the text of /proc/PID/status contains a capability.
func hasCapability(status, set string, capability int) bool {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, set+":"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && bits>>capability&1 == 1
		}
	}
	return false
}
