package config

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// Resource is a kind that the mesh asks an API server for.
type Resource struct {
	Group, Kind string
	Model       model.Kind // of the objects that it becomes
	Versions    []string   // that can be decoded, the best first; empty: any
	Custom      bool       // read as JSON, in the best version of the API server, which may not have the kind
	Read        bool       // becomes a model object; the user is warned about the other kinds, which Istio reads
}

// Resources lists them: first those that are read.
func Resources() []Resource {
	var out []Resource
	for _, k := range readKinds {
		custom := strings.HasSuffix(k.group, "istio.io") || k.group == gatewayapi.Group || k.group == groupKubernetesNetworking
		out = append(out, Resource{Group: k.group, Kind: k.kind, Model: k.model(), Versions: k.versions, Custom: custom, Read: true})
	}
	read := len(out)
	for group, kinds := range laterKinds {
		for _, kind := range kinds {
			out = append(out, Resource{Group: group, Kind: kind, Model: model.Kind(kind), Custom: true})
		}
	}
	slices.SortFunc(out[read:], func(a, b Resource) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind))
	})
	return out
}

// FromRaw decodes an object of one of Resources from the JSON of an API server, which has
// checked it against a schema already. As in Istio, unknown fields are those of newer
// versions, and are ignored. Only an object that cannot be decoded is checked field by field, to find the invalid one.
func (d Decoder) FromRaw(r Resource, raw []byte) Decoded {
	if !r.Read {
		return d.fromDocument(raw)
	}
	typed := newTyped(r.Model)
	if err := json.Unmarshal(raw, typed); err != nil {
		return d.undecodable(r, raw, err)
	}
	out := Decoded{Key: model.Key{Kind: r.Model, Namespace: typed.GetNamespace(), Name: typed.GetName()}}
	if out.OtherRevision = d.otherRevision(r.Group, typed.GetLabels()); out.OtherRevision && !servedByAll(r.Model) {
		return out
	}
	out.Object, out.Problems = d.FromTyped(typed)
	out.Salvaged = d.salvageRaw(r, raw, out.Problems)
	return out
}

// fromDocument reads JSON as if it were written in a file.
func (d Decoder) fromDocument(raw []byte) Decoded {
	var n yaml.Node
	if err := yaml.Unmarshal(raw, &n); err != nil {
		return Decoded{Problems: problem.List{{Severity: problem.SeverityError, Code: code.InvalidYAML, Message: schema.SyntaxMessage(err)}}}
	}
	return d.FromNode(&n)
}

// undecodable reports the problems of an object that does not fit its type.
func (d Decoder) undecodable(r Resource, raw []byte, err error) Decoded {
	out := d.fromDocument(raw)
	if out.OtherRevision && !servedByAll(r.Model) {
		return out
	}
	if out.Problems.HasErrors() && out.Key.Name != "" {
		out.Object = nil
		return out
	}
	var meta metav1.PartialObjectMetadata
	_ = json.Unmarshal(raw, &meta) // the problems are reported without a name too
	rep := &problem.Report{Object: model.Key{Kind: r.Model, Namespace: meta.Namespace, Name: meta.Name}}
	rep.Errorf(code.Unreadable, "", "cannot be decoded: %v", err)
	return Decoded{Key: rep.Object, Problems: append(out.Problems, rep.Problems...), OtherRevision: out.OtherRevision}
}
