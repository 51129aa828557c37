package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/salvage"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// document is one object in a file.
type document struct {
	key      model.Key
	object   model.Object // nil: it has errors, or its kind is not read
	partial  *salvage.Result
	draft    *config.Draft
	content  []byte // JSON
	node     *yaml.Node
	problems problem.List
}

// usable returns the object, else its valid part; nil: none.
func (d *document) usable() model.Object {
	if d.object == nil && d.partial != nil {
		return d.partial.Object
	}
	return d.object
}

// template is a workload that is not there yet, with the document that makes it.
type template struct {
	*model.Workload
	node *yaml.Node
	pod  *corev1.PodTemplateSpec
}

// parsed is the content of a file.
type parsed struct {
	docs []document
	// unread are the documents that the mesh has no use for.
	unread []document
	// written counts the non-empty documents, including kinds that are not read.
	written int
	// templates are the workloads that Deployments and other owners of Pods make.
	templates []template
	// syntax is set if the file could not be read to its end; missing objects may exist.
	syntax problem.List
	// nameless is the first error of a document without a known name, which may be any of the missing objects; nil: none.
	nameless *problem.Problem
	// hidden: the file may contain a policy without a readable part.
	hidden bool
}

// parse reads all documents of a file. path is its name in messages.
func parse(path string, data []byte, d config.Decoder) parsed {
	data = withoutTabs(path, data)
	var out parsed
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			out.syntax = problem.List{syntaxProblem(path, data, err)}
			out.hidden = out.hidden || marked(string(data))
			return out
		}
		if at := target(&n); at != nil && at.ShortTag() != "!!null" {
			out.written++
		}
		out.add(&lists{path: path, d: d}, &n)
	}
}

// withoutTabs makes JSON valid YAML, which allows no tabs. Strings of JSON contain none.
func withoutTabs(path string, data []byte) []byte {
	if strings.EqualFold(filepath.Ext(path), ".json") {
		return bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	}
	return data
}

// recovered decodes one object. A panic, which is a bug, becomes an error of the document: any object may be in it.
func recovered(n *yaml.Node, decode func(*yaml.Node) config.Decoded) (got config.Decoded) {
	defer func() {
		if cause := recover(); cause != nil {
			got = config.Decoded{Problems: problem.List{{
				Severity: problem.SeverityError, Code: code.Unreadable,
				Message: fmt.Sprintf("cannot be read: internal error: %v; report this bug with the document", cause),
			}}}
		}
	}()
	return decode(n)
}

// decode decodes one object.
func (p *parsed) decode(path string, n *yaml.Node, decode func(*yaml.Node) config.Decoded) {
	got := recovered(n, decode)
	if hint := inputOfTool(path); hint != "" && got.Key == (model.Key{}) {
		got.Problems = problem.List{{Severity: problem.SeverityInfo, Code: code.NotRendered, Message: hint}}
	}
	for i := range got.Problems {
		got.Problems[i].File = path
		got.Problems[i].Line = schema.LineOf(n, got.Problems[i].Field)
		explainSpace(&got.Problems[i])
	}
	if got.Template != nil {
		p.templates = append(p.templates, template{got.Template, n, got.PodTemplate})
	}
	if got.Object == nil && len(got.Problems) == 0 {
		p.unread = append(p.unread, document{key: got.Key, content: got.Content, node: n})
		return
	}
	doc := document{content: got.Content, key: got.Key, object: got.Object, partial: got.Salvaged, draft: got.Draft, node: n, problems: got.Problems}
	if o := doc.usable(); o != nil {
		m := o.Metadata()
		m.ResourceVersion = strconv.FormatUint(xxhash.Sum64(got.Content), 16)
		m.Origin = fmt.Sprintf("%s:%d", path, schema.LineOf(n, ""))
	}
	if doc.partial != nil {
		doc.partial.Note.File, doc.partial.Note.Line = path, schema.LineOf(n, "")
	}
	p.docs = append(p.docs, doc)
	p.hidden = p.hidden || hides(n, &doc)
	if got.Problems.HasErrors() && (got.Key.Name == "" || got.Key.Kind == "") {
		p.unnamed(got.Problems)
	}
}

// unnamed records the problems of a document without a known name.
func (p *parsed) unnamed(problems problem.List) {
	i := slices.IndexFunc(problems, func(one problem.Problem) bool { return one.Severity == problem.SeverityError })
	if p.nameless == nil && i >= 0 {
		p.nameless = new(problems[i])
	}
}

// inputOfTool returns what to do about a file that kustomize or Helm reads; "": it is none. Such files have no objects.
func inputOfTool(path string) string {
	switch strings.ToLower(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))) {
	case "kustomization":
		return "is input of kustomize, which may change the files beside it; check the result: kustomize build . | moonsail analyze -"
	case "chart", "values":
		return "is part of a chart of Helm; check the result: helm template . | moonsail analyze -"
	}
	return ""
}
