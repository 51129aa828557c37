package istiodebug

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/config"
)

// header is the part of an object that the pages read.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct{ Name string }
	Data       map[string]string `json:"data"`
}

// IsConfig reports whether istiod counts the kinds of an API group to the configuration: those of Istio and of the
// Gateway API.
func IsConfig(group string) bool {
	return strings.HasSuffix(group, ".istio.io") || group == "gateway.networking.k8s.io"
}

func (p *Pages) configz(w http.ResponseWriter, r *http.Request) {
	objects, err := p.Objects(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	out := []json.RawMessage{}
	for _, o := range objects {
		var h header
		if json.Unmarshal(o, &h) != nil {
			continue
		}
		if group, _, _ := strings.Cut(h.APIVersion, "/"); IsConfig(group) {
			out = append(out, o)
		}
	}
	reply(w, out)
}

func (p *Pages) resourcesz(w http.ResponseWriter, _ *http.Request) {
	type kind struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	}
	out := []kind{}
	for _, r := range config.Resources() {
		for _, v := range r.Versions {
			out = append(out, kind{r.Group, v, r.Kind})
		}
	}
	reply(w, out)
}

// mesh answers with the mesh configuration of the ConfigMap; {}: there is none.
func (p *Pages) mesh(w http.ResponseWriter, r *http.Request) {
	objects, err := p.ConfigMaps(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	i := slices.IndexFunc(objects, func(o json.RawMessage) bool {
		var h header
		return json.Unmarshal(o, &h) == nil && h.Kind == "ConfigMap" && h.Metadata.Name == p.MeshConfig
	})
	if i < 0 {
		reply(w, struct{}{})
		return
	}
	var h header
	_ = json.Unmarshal(objects[i], &h) // it was decoded above
	text, err := yaml.YAMLToJSON([]byte(h.Data["mesh"]))
	if err != nil {
		http.Error(w, "the mesh configuration is not YAML: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if string(text) == "null" {
		text = []byte("{}")
	}
	reply(w, json.RawMessage(text))
}
