package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"
	"text/template"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// data is the data of templates, with Istio's names.
type data struct {
	TypeMeta       metav1.TypeMeta // of the Pod's owner
	DeploymentMeta struct{ Namespace, Name string }
	ObjectMeta     metav1.ObjectMeta
	Spec           corev1.PodSpec
	ProxyConfig    *meshconfig.ProxyConfig
	MeshConfig     *meshconfig.MeshConfig
	Values         map[string]any
	Revision       string
	NativeSidecars bool
	// InboundTrafficPolicyMode is "localhost" or "passthrough".
	InboundTrafficPolicyMode string
	ProxyImage               string
	ProxyInitImage           string
	ProxyUID                 int64
	ProxyGID                 int64
}

func (r *request) data() *data {
	d := &data{
		TypeMeta: r.owner.TypeMeta, ObjectMeta: r.pod.ObjectMeta, Spec: r.pod.Spec, ProxyConfig: r.proxyConfig,
		MeshConfig: &meshconfig.MeshConfig{
			DefaultConfig: r.configs.base, TrustDomain: r.TrustDomain,
			ProxyListenPort: portOf(r.settings.OutboundPort), ProxyInboundListenPort: portOf(r.settings.InboundPort),
		},
		Values: r.Values, Revision: r.Revision, NativeSidecars: r.native, InboundTrafficPolicyMode: r.inboundMode(),
		ProxyImage: r.image(), ProxyInitImage: r.image(), ProxyUID: proxyID, ProxyGID: proxyID,
	}
	d.DeploymentMeta.Namespace, d.DeploymentMeta.Name = r.owner.Namespace, r.owner.Name
	return d
}

// portOf decodes a port of settings that were checked.
func portOf(text string) int32 {
	n, _ := strconv.ParseUint(text, 10, 16)
	return int32(n)
}

const localInbound, passInbound = "localhost", "passthrough"

// inboundMode returns how Envoy calls applications, in the words of Istio's templates.
func (c *Config) inboundMode() string {
	if c.ProxyConfigs != nil && c.ProxyConfigs.LocalInbound {
		return localInbound
	}
	return passInbound
}

// functions are those of Istio's templates, with the same names and order of arguments. The functions of Istio's own
// sidecar template are missing.
var functions = template.FuncMap{
	"annotation": func(m metav1.ObjectMeta, name string, fallback any) string {
		if v, ok := m.Annotations[name]; ok {
			return v
		}
		return fmt.Sprint(fallback)
	},
	"isset": func(m map[string]string, key string) bool { _, ok := m[key]; return ok },
	"valueOrDefault": func(value, fallback any) any {
		if value == nil || value == "" {
			return fallback
		}
		return value
	},
	"default": func(fallback, value any) any {
		if v := reflect.ValueOf(value); !v.IsValid() || v.IsZero() {
			return fallback
		}
		return value
	},
	"quote":        func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
	"indent":       indent,
	"nindent":      func(n int, text string) string { return "\n" + indent(n, text) },
	"toYaml":       toYAML,
	"toJSON":       toJSON,
	"toJson":       toJSON,
	"fromJSON":     fromJSON,
	"structToJSON": toJSON,
	"protoToJSON": func(m proto.Message) (string, error) {
		text, err := protojson.Marshal(m)
		return compact(text), err
	},
	"contains":  func(part, text string) bool { return strings.Contains(text, part) },
	"toLower":   strings.ToLower,
	"lower":     strings.ToLower,
	"upper":     strings.ToUpper,
	"trim":      strings.TrimSpace,
	"trimAll":   func(chars, text string) string { return strings.Trim(text, chars) },
	"trunc":     func(n int, text string) string { return text[:min(max(n, 0), len(text))] },
	"join":      func(by string, list []string) string { return strings.Join(list, by) },
	"split":     func(by, text string) []string { return strings.Split(text, by) },
	"replace":   func(from, to, text string) string { return strings.ReplaceAll(text, from, to) },
	"list":      func(items ...string) []string { return items },
	"append":    func(list []string, items ...string) []string { return append(list[:len(list):len(list)], items...) },
	"directory": func(file string) string { return path.Dir(file) },
	"omitNil": func(m map[string]any) map[string]any {
		out := maps.Clone(m)
		maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
		return out
	},
	"env": func(name, fallback string) string {
		if v, ok := os.LookupEnv(name); ok {
			return v
		}
		return fallback
	},
	"excludeInboundPort": func(port any, ports string) string {
		p := fmt.Sprint(port)
		for w := range strings.SplitSeq(ports, ",") {
			if strings.TrimSpace(w) == p {
				return ports
			}
		}
		return strings.Trim(p+","+ports, ",")
	},
}

func indent(n int, text string) string {
	pad := strings.Repeat(" ", max(n, 0))
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func toYAML(v any) (string, error) {
	text, err := yaml.Marshal(v)
	return strings.TrimSuffix(string(text), "\n"), err
}

func toJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func fromJSON(text string) (any, error) {
	var v any
	return v, json.Unmarshal([]byte(text), &v)
}
