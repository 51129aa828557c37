package config

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/istio"
	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/salvage"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// Decoder decodes objects for one cluster. It has no state; copies are free.
type Decoder struct {
	Domain           string // the cluster's: "cluster.local", which is also the default
	DefaultNamespace string // of objects without a namespace; empty: "default"
	PodsListed       bool   // all Pods are decoded, so that slices name none that is not there
	NoAutoAddresses  bool   // ServiceEntries without addresses get none
	Revision         string // of the control plane: objects that are labelled for another are not read; empty: all are
	MeshConfigMap    string // name of the ConfigMap with the mesh's configuration; empty: "istio"
	// Getenv returns environment variables of the control plane, to which MeshConfig may refer; nil: they are not known.
	Getenv func(name string) string
}

// cluster is what converters know about the cluster.
func (d Decoder) cluster() convert.Cluster {
	return convert.Cluster{
		Domain: cmp.Or(d.Domain, "cluster.local"), PodsListed: d.PodsListed, NoAutoAddresses: d.NoAutoAddresses, MeshConfigName: d.MeshConfigName(),
		Getenv: d.Getenv,
	}
}

// Decoded is what became of one document.
type Decoded struct {
	Key      model.Key       // zero where kind or name are not known
	Object   model.Object    // nil where the kind is not read, or where there are errors
	Salvaged *salvage.Result // the valid part of an object with errors; nil: none
	Draft    *Draft          // the object without its invalid fields; nil: it has no errors, or nothing is left
	Content  []byte          // the document as JSON with sorted keys: its identity
	Problems problem.List
	// Template is the workload that a Deployment or another owner of Pods makes; nil for other kinds.
	Template    *model.Workload
	PodTemplate *corev1.PodTemplateSpec
	// OtherRevision: it is for the control planes of another revision, and only its key is set. A Gateway of the Gateway API is
	// decoded nevertheless, because every revision serves it.
	OtherRevision bool
}

// FromYAML decodes one YAML or JSON document. The object is nil where the document
// has errors, is empty, or is of a kind that the mesh has no use for.
func (d Decoder) FromYAML(doc []byte) (model.Object, problem.List) {
	var n yaml.Node
	if err := yaml.Unmarshal(doc, &n); err != nil {
		return nil, problem.List{{Severity: problem.SeverityError, Code: code.InvalidYAML, Message: schema.SyntaxMessage(err)}}
	}
	out := d.FromNode(&n)
	for i := range out.Problems {
		out.Problems[i].Line = schema.LineOf(&n, out.Problems[i].Field)
	}
	return out.Object, out.Problems
}

// FromNode decodes one parsed document. Lines are for LineOf to find.
func (d Decoder) FromNode(n *yaml.Node) Decoded {
	r := &problem.Report{}
	tree, err := schema.Tree(n)
	if err != nil {
		r.Errorf(code.Unreadable, "", "cannot be read: %v", err)
		return Decoded{Problems: r.Problems}
	}
	if tree == nil {
		return Decoded{}
	}
	top, ok := tree.(map[string]any)
	if !ok {
		r.Errorf(code.NotAnObject, "", "is not an object; a document starts with apiVersion and kind")
		return Decoded{Problems: r.Problems}
	}
	return d.fromTree(n, top, r)
}

func (d Decoder) fromTree(n *yaml.Node, top map[string]any, r *problem.Report) Decoded {
	if line := schema.SecondHeader(n); line > 0 {
		r.Errorf(code.NoSeparator, "kind", "is set twice: line %d begins another object; write a line --- before it", line)
		return Decoded{Problems: r.Problems}
	}
	kind, ok := header(r, top)
	if !ok {
		return Decoded{Problems: r.Problems}
	}
	r.Object = d.keyOf(kind, top)
	other := d.otherRevisionTree(kind.group, top)
	if other && !servedByAll(kind.model()) || d.otherMeshConfig(r.Object) {
		return Decoded{Key: r.Object, OtherRevision: true}
	}
	if kind.kind == "Kustomization" && kind.use == useNothing {
		r.Add(code.NotRendered, problem.SeverityInfo, "kind", "is input of kustomize, which may change the files beside it; check the result: kustomize build . | moonsail analyze -")
		return Decoded{Problems: r.Problems}
	}
	if kind.use == useNothing {
		out := Decoded{Problems: r.Problems}
		if at := kube.TemplateOf(kind.group, kind.kind); at != nil {
			out.Template, out.PodTemplate = kube.Template(r.Object, top, at)
			kube.CheckTemplate(r, n, top, at)
			out.Problems = r.Problems
		}
		return out
	}
	if kind.use == useLater {
		r.Warnf(code.KindNotSupported, "", "%s of %s has no effect in Moonsail yet; it is ignored%s", kind.kind, kind.group, insteadOfKind[kind.kind])
		return Decoded{Problems: r.Problems}
	}
	out := d.checked(kind, n, top, r)
	out.OtherRevision = other
	out.Salvaged = d.salvageNode(kind, r, out.Content, out.Problems)
	d.draft(kind, &out, !r.Problems.HasErrors())
	return out
}

// checked decodes a document that fits its kind.
func (d Decoder) checked(kind apiKind, n *yaml.Node, top map[string]any, r *problem.Report) Decoded {
	typed := newTyped(kind.model())
	s := schema.OfType(reflect.TypeOf(typed))
	schema.Check(r, "", n, s)
	if r.Object.Kind == model.KindSecret {
		kube.HideSecrets(r.Problems)
	}
	setNamespace(top, r.Object.Namespace)
	content, err := json.Marshal(top)
	if err == nil && !r.Problems.HasErrors() {
		err = json.Unmarshal(content, typed)
	}
	out := Decoded{Key: d.modelKey(r.Object), Content: content}
	if err != nil {
		r.Errorf(code.Unreadable, "", "cannot be decoded: %v", err)
	}
	if r.Problems.HasErrors() {
		out.Problems = r.Problems
		return out
	}
	if r.Object.Kind == model.KindAuthorizationPolicy {
		istio.EmptyRules(r, top)
	}
	typed.SetNamespace(r.Object.Namespace)
	object, problems := d.FromTyped(typed)
	out.Object, out.Problems = object, append(problems, r.Problems...)
	return out
}

// header reads apiVersion and kind.
func header(r *problem.Report, top map[string]any) (apiKind, bool) {
	apiVersion, _ := top["apiVersion"].(string)
	kind, _ := top["kind"].(string)
	if apiVersion == "" || kind == "" {
		missing := "apiVersion"
		if apiVersion != "" {
			missing = "kind"
		}
		r.Errorf(code.NotAnObject, "", "has no %s; every document needs apiVersion and kind, such as networking.istio.io/v1 and VirtualService", missing)
		return apiKind{}, false
	}
	k, err := lookupKind(apiVersion, kind)
	if err != nil {
		at := problem.Path("apiVersion")
		if strings.Contains(err.Error(), "has no kind") {
			at = "kind"
		}
		r.Errorf(code.UnknownKind, at, "%v", err)
		return apiKind{}, false
	}
	if other := otherGateway(k, top); other != "" {
		r.Errorf(code.UnknownKind, "apiVersion", "is that of another kind of Gateway: spec has the fields of %s; write that", other)
		return apiKind{}, false
	}
	return k, true
}

// keyOf reads the name and the namespace; the default is the decoder's namespace.
func (d Decoder) keyOf(kind apiKind, top map[string]any) model.Key {
	meta, _ := top["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	ns, _ := meta["namespace"].(string)
	switch {
	case kind.cluster:
		ns = ""
	case ns == "":
		ns = cmp.Or(d.DefaultNamespace, metav1.NamespaceDefault)
	}
	return model.Key{Kind: kind.model(), Namespace: ns, Name: name}
}

// setNamespace writes the namespace of an object that leaves it out, for readers of its JSON.
func setNamespace(top map[string]any, namespace string) {
	if meta, _ := top["metadata"].(map[string]any); meta != nil && namespace != "" {
		meta["namespace"] = namespace
	}
}

// otherGateway returns the apiVersion of the other kind Gateway, Istio's or that of the Gateway API, if the spec has its fields
// only.
func otherGateway(k apiKind, top map[string]any) string {
	spec, _ := top["spec"].(map[string]any)
	_, servers := spec["servers"]
	_, listeners := spec["listeners"]
	_, class := spec["gatewayClassName"]
	switch {
	case k.kind != "Gateway":
	case k.group == groupNetworking && !servers && (listeners || class):
		return gatewayapi.Group + "/v1"
	case k.group == gatewayapi.Group && servers && !listeners && !class:
		return groupNetworking + "/v1"
	}
	return ""
}
