package istio

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// Decoder decodes objects for one cluster. It has no state; copies are free.
type Decoder struct {
	Domain           string // the cluster's: "cluster.local", which is also the default
	DefaultNamespace string // of objects that say none; empty: "default"
	PodsListed       bool   // all Pods are decoded, so that slices name none that is not there
	NoAutoAddresses  bool   // ServiceEntries without addresses get none
	Revision         string // of the control plane: objects that are labelled for another are not read; empty: all are
}

func (d Decoder) domain() string {
	if d.Domain == "" {
		return "cluster.local"
	}
	return d.Domain
}

// Decoded is what became of one document.
type Decoded struct {
	Key      model.Key    // zero where kind or name are not known
	Object   model.Object // nil where the kind is not read, or where there are errors
	Salvaged *Salvaged    // what is good of it, where there are errors; nil: nothing
	Content  []byte       // the document as JSON with sorted keys: its identity
	Problems Problems
	// OtherRevision tells that it is for the control planes of another revision: there is nothing of it but its key.
	OtherRevision bool
}

// FromYAML decodes one YAML or JSON document. The object is nil where the document
// has errors, is empty, or is of a kind that the mesh has no use for.
func (d Decoder) FromYAML(doc []byte) (model.Object, Problems) {
	var n yaml.Node
	if err := yaml.Unmarshal(doc, &n); err != nil {
		return nil, Problems{{Severity: SeverityError, Message: SyntaxMessage(err)}}
	}
	out := d.FromNode(&n)
	for i := range out.Problems {
		out.Problems[i].Line = LineOf(&n, out.Problems[i].Field)
	}
	return out.Object, out.Problems
}

// SyntaxMessage is a YAML parser's error in words for a person.
func SyntaxMessage(err error) string {
	return "is not valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
}

// FromNode decodes one parsed document. Lines are for LineOf to find.
func (d Decoder) FromNode(n *yaml.Node) Decoded {
	r := &report{}
	tree, err := (&treeBuilder{}).value(n, 0)
	if err != nil {
		r.errorf("", "cannot be read: %v", err)
		return Decoded{Problems: r.list}
	}
	if tree == nil {
		return Decoded{}
	}
	top, ok := tree.(map[string]any)
	if !ok {
		r.errorf("", "is not an object; a document starts with apiVersion and kind")
		return Decoded{Problems: r.list}
	}
	return d.fromTree(n, top, r)
}

func (d Decoder) fromTree(n *yaml.Node, top map[string]any, r *report) Decoded {
	kind, ok := header(r, top)
	if !ok {
		return Decoded{Problems: r.list}
	}
	r.object = d.keyOf(kind, top)
	if d.elsewhereTree(kind.group, top) {
		return Decoded{Key: r.object, OtherRevision: true}
	}
	if kind.use == useNothing {
		r.unserved(kind, top)
		return Decoded{Problems: r.list}
	}
	if kind.use == useLater {
		r.warnf("", "%s of %s has no effect in Moonsail yet; it is ignored", kind.kind, kind.group)
		return Decoded{Problems: r.list}
	}
	out := d.checked(kind, n, top, r)
	out.Salvaged = d.partialNode(kind, r, out.Content, out.Problems)
	return out
}

// checked decodes a document that fits its kind.
func (d Decoder) checked(kind apiKind, n *yaml.Node, top map[string]any, r *report) Decoded {
	typed := newTyped(kind.model())
	s := goShape(reflect.TypeOf(typed))
	checker{r}.value("", n, s)
	if r.object.Kind == model.KindSecret {
		hideSecrets(r.list)
	}
	content, err := json.Marshal(top)
	if err == nil && !r.list.HasErrors() {
		err = json.Unmarshal(content, typed)
	}
	out := Decoded{Key: r.object, Content: content}
	if err != nil {
		r.errorf("", "cannot be decoded: %v", err)
	}
	if r.list.HasErrors() {
		out.Problems = r.list
		return out
	}
	typed.SetNamespace(r.object.Namespace)
	out.Object, out.Problems = d.FromTyped(typed)
	return out
}

// header reads apiVersion and kind.
func header(r *report, top map[string]any) (apiKind, bool) {
	apiVersion, _ := top["apiVersion"].(string)
	kind, _ := top["kind"].(string)
	if apiVersion == "" || kind == "" {
		missing := "apiVersion"
		if apiVersion != "" {
			missing = "kind"
		}
		r.errorf("", "has no %s; every document needs apiVersion and kind, such as networking.istio.io/v1 and VirtualService", missing)
		return apiKind{}, false
	}
	k, err := lookupKind(apiVersion, kind)
	if err != nil {
		at := path("apiVersion")
		if strings.Contains(err.Error(), "has no kind") {
			at = "kind"
		}
		r.errorf(at, "%v", err)
		return apiKind{}, false
	}
	return k, true
}

// keyOf reads the name and the namespace, which is the decoder's where none is given.
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
