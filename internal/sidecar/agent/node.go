package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// node is what Envoy tells the control plane of itself.
type node struct {
	id, cluster string
	locality    model.Locality
	metadata    map[string]any // values as encoding/json makes them
}

// makeNode follows Istio's forms: sidecar~IP~NAME.NAMESPACE~NAMESPACE.svc.DOMAIN.
func (s *settings) makeNode() node {
	w := &s.Workload
	return node{
		id: fmt.Sprintf("%s~%s~%s.%s~%s.svc.%s", s.Type, w.IPs[0],
			w.Name, w.Namespace, w.Namespace, s.Domain),
		cluster:  s.serviceCluster(),
		locality: s.locality(),
		metadata: s.metadata(),
	}
}

// serviceCluster is ProxyConfig's serviceCluster, else APP.NAMESPACE, where APP is the
// first that there is of the labels and the workload's name.
func (s *settings) serviceCluster() string {
	if c := s.proxyConfig.GetServiceCluster(); c != "" && c != "istio-proxy" {
		return c
	}
	w := &s.Workload
	for _, app := range []string{w.Labels["app"], w.Labels["app.kubernetes.io/name"], w.WorkloadName} {
		if app != "" {
			return app + "." + w.Namespace
		}
	}
	return "istio-proxy." + w.Namespace
}

// locality: said, or from the labels that Istio reads, where "." may stand for "/".
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
			return s.checked(label, model.ParseLocality(l))
		}
	}
	return model.Locality{
		Region:  w.Labels["topology.kubernetes.io/region"],
		Zone:    w.Labels["topology.kubernetes.io/zone"],
		Subzone: w.Labels["topology.istio.io/subzone"],
	}
}

// checked warns of a label that is no locality.
func (s *settings) checked(label string, l model.Locality) model.Locality {
	if err := l.Check(); err != nil {
		s.log.Warn("a label of the workload has no locality", "label", label, "error", err)
	}
	return l
}

// metadata uses Istio's names. What is empty is left out.
func (s *settings) metadata() map[string]any {
	w := &s.Workload
	m := map[string]any{
		"LABELS":                anyMap(w.Labels),
		"ANNOTATIONS":           anyMap(w.Annotations),
		"PROXY_CONFIG":          s.proxyConfigJSON(),
		"ENVOY_STATUS_PORT":     s.ports.Health,
		"ENVOY_PROMETHEUS_PORT": s.ports.Prometheus,
	}
	if s.ownTracing != nil {
		m[agentapi.MetaTracing] = jsonOf(s.ownTracing)
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
		"ISTIO_VERSION":     IstioVersion,
		"INTERCEPTION_MODE": string(s.Interception),
		"INSTANCE_IPS":      strings.Join(w.IPs, ","),
		"POD_PORTS":         podPorts(w.Ports),
		"OWNER":             w.Owner,
		"WORKLOAD_NAME":     w.WorkloadName,
		"NODE_NAME":         w.NodeName,
		"APP_CONTAINERS":    strings.Join(w.Containers, ","),
	} {
		m[name] = value
	}
	for name, value := range s.proxyConfig.GetProxyMetadata() {
		if key, ok := strings.CutPrefix(name, metaPrefix); ok {
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

// podPorts is a JSON list inside a string, as Istio's own sidecars send it.
func podPorts(ports []Port) string {
	if len(ports) == 0 {
		return ""
	}
	text, _ := json.Marshal(ports) // strings and numbers: cannot fail
	return string(text)
}

func (s *settings) proxyConfigJSON() any {
	return jsonOf(s.proxyConfig)
}

// jsonOf is a message that was read from JSON as metadata.
func jsonOf(message proto.Message) any {
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil // invalid UTF-8 cannot come out of a parser that accepted it
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

// Istio's environment variables that become metadata.
const (
	metaPrefix     = "ISTIO_META_"
	metaJSONPrefix = "ISTIO_METAJSON_"
)

// MetadataFromEnv collects node metadata from an environment ("NAME=value" words):
// ISTIO_META_X=v is X: v, and each ISTIO_METAJSON_X holds a JSON object, as in Istio.
// ISTIO_METAJSON_LABELS holds the labels themselves.
func MetadataFromEnv(environ []string) (metadata map[string]any, labels map[string]string, err error) {
	metadata = map[string]any{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if key, ok := strings.CutPrefix(name, metaPrefix); ok && value != "" {
			metadata[key] = value
		}
		if _, ok := strings.CutPrefix(name, metaJSONPrefix); !ok || value == "" {
			continue
		}
		var into any = &metadata
		if name == metaJSONPrefix+"LABELS" {
			into = &labels
		}
		if err := json.Unmarshal([]byte(value), into); err != nil {
			return nil, nil, fmt.Errorf("environment variable %s holds no JSON object of the expected form: %w", name, err)
		}
	}
	return metadata, labels, nil
}
