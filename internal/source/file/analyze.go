package file

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// Tree is a directory of configuration, read once.
type Tree struct {
	Objects  []model.Object // those that would be in force, in key order
	Problems problem.List   // sorted
	Files    int
	// Documents counts the non-empty documents, including objects that the mesh does not read.
	Documents int
	// Replaced are the files that are not YAML, and whose objects Options.Change has. Their errors are left out.
	Replaced []string
	// Templates are the workloads that Deployments and other owners of Pods make.
	Templates []*model.Workload
	// Pods are the templates of Templates, by the same keys.
	Pods map[model.Key]*corev1.PodTemplateSpec
	// Drafts are the objects with errors that no other file defines.
	Drafts map[model.Key]*config.Draft
	// Broken are the objects with errors.
	Broken map[model.Key]bool
	// Raw are the objects of the Gateway API as JSON, also those that are not used.
	Raw   map[model.Key][]byte
	nodes map[string]*yaml.Node // by origin
	// documents are those of each file.
	documents map[string][]*yaml.Node
	// others are the origins of what is not among Objects.
	others map[model.Key]string
	// suppressed are the values of the annotation of objects that suppresses messages.
	suppressed map[model.Key]string
}

// Stdin among the paths of AnalyzeAll is standard input.
const Stdin = "-"

// Analyze reads a directory or a file once.
func Analyze(path string, d config.Decoder) (*Tree, error) { return AnalyzeAll(d, nil, path) }

// AnalyzeAll reads directories and files as one tree. stdin is the content of Stdin; nil: Stdin is a file name.
func AnalyzeAll(d config.Decoder, stdin io.Reader, paths ...string) (*Tree, error) {
	return Options{Decoder: d, Stdin: stdin}.Analyze(paths...)
}

// Options are the ways to read a tree.
type Options struct {
	Decoder config.Decoder
	Stdin   io.Reader // the content of Stdin; nil: Stdin is a file name
	Shallow bool      // leave out the folders inside of directories
	// Change are directories and files whose objects replace those of the others, as 'kubectl apply' does.
	Change []string
	// Bounded limits the paths to MaxFiles files and directories, and MaxBytes of text. It is for paths that the user did not name.
	Bounded bool
}

// Limits of a tree that is Bounded.
const (
	MaxFiles = 5000
	MaxBytes = 64 << 20
)

// Analyze reads directories and files as one tree.
func (o Options) Analyze(paths ...string) (*Tree, error) {
	named := o
	named.Bounded = false
	change, err := named.list(o.Change)
	if err != nil {
		return nil, err
	}
	l, err := o.list(paths)
	if err != nil {
		return nil, err
	}
	size := 0
	l.files = slices.DeleteFunc(l.files, func(path string) bool { return slices.Contains(change.files, path) })
	maps.Copy(l.errs, change.errs)
	t := &Tree{Files: len(l.files) + len(change.files), documents: map[string][]*yaml.Node{}, nodes: map[string]*yaml.Node{}, Raw: map[model.Key][]byte{}, others: map[model.Key]string{}, suppressed: map[model.Key]string{}, Drafts: map[model.Key]*config.Draft{}, Broken: map[model.Key]bool{}, Pods: map[model.Key]*corev1.PodTemplateSpec{}}
	c := newCatalog()
	changed := map[model.Key]bool{}
	for _, path := range slices.Concat(change.files, l.files) {
		data, err := content(path, o.Stdin)
		if err != nil {
			l.errs[path] = err
			continue
		}
		isChange := slices.Contains(change.files, path)
		if !isChange {
			size += len(data)
		}
		if o.Bounded && size > MaxBytes {
			return nil, &fs.PathError{Op: "read", Path: paths[0], Err: fmt.Errorf("it has more than %d MiB of YAML and JSON", MaxBytes>>20)}
		}
		p := parse(path, data, o.Decoder)
		if isChange {
			p.keys(changed)
		} else {
			p.remove(changed)
			if len(p.syntax) > 0 && len(change.files) > 0 && o.replaces(path, data, changed, change.files) {
				t.Replaced, p.syntax = append(t.Replaced, path), nil
			}
		}
		t.add(path, p)
		c.set(path, p, time.Time{})
	}
	t.Objects, t.Problems = c.objects(), c.problems()
	for _, o := range t.Objects {
		if len(c.claims[o.Metadata().Key]) > 0 && !c.isPartial(o.Metadata().Key) {
			delete(t.Drafts, o.Metadata().Key)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(l.errs)) {
		t.Problems = append(t.Problems, ioProblem(path, l.errs[path]))
	}
	return t, nil
}

// list returns the files of directories and files, each once.
func (o Options) list(paths []string) (listing, error) {
	l := listing{errs: map[string]error{}}
	for _, path := range paths {
		if err := l.include(path, o); err != nil {
			return l, err
		}
	}
	slices.Sort(l.files)
	l.files = slices.Compact(l.files)
	return l, nil
}

// keys adds the keys of all objects of a file that have one.
func (p *parsed) keys(into map[model.Key]bool) {
	for _, doc := range slices.Concat(p.docs, p.unread) {
		if doc.key.Name != "" {
			into[doc.key] = true
		}
	}
	for _, w := range p.templates {
		into[w.Key] = true
	}
}

// remove removes the objects with these keys.
func (p *parsed) remove(keys map[model.Key]bool) {
	has := func(d document) bool { return keys[d.key] }
	p.docs, p.unread = slices.DeleteFunc(p.docs, has), slices.DeleteFunc(p.unread, has)
	p.templates = slices.DeleteFunc(p.templates, func(w template) bool { return keys[w.Key] })
}

// include adds the files of a directory, or one file.
func (l *listing) include(path string, o Options) error {
	more := listing{files: []string{path}, errs: map[string]error{}}
	if path != Stdin || o.Stdin == nil {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			more.files[0] = cleaned(path, info)
		default:
			if more.files = nil; o.Bounded {
				more.most = MaxFiles
			}
			if more.walk(path, 0, nil); more.isFull() {
				return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than %d files and directories", MaxFiles)}
			}
			if o.Shallow {
				more.keepDirect(path)
			}
		}
	}
	maps.Copy(l.errs, more.errs)
	l.files = append(l.files, more.files...)
	return nil
}

// cleaned returns the shortest name of a file, so that files named in several ways are read once. Behind a link, a/../b is not b.
func cleaned(path string, info os.FileInfo) string {
	short := filepath.Clean(path)
	if same, err := os.Stat(short); short == Stdin || err != nil || !os.SameFile(info, same) {
		return path
	}
	return short
}

// keepDirect removes what is in folders of a directory.
func (l *listing) keepDirect(dir string) {
	inside := func(path string) bool { return filepath.Dir(path) != filepath.Clean(dir) }
	l.files = slices.DeleteFunc(l.files, inside)
	maps.DeleteFunc(l.errs, func(path string, _ error) bool { return inside(path) && path != dir })
}

func content(path string, stdin io.Reader) ([]byte, error) {
	if path == Stdin && stdin != nil {
		return io.ReadAll(stdin)
	}
	data, _, err := read(path)
	return data, err
}

// add adds the documents of a file, with the locations of objects.
func (t *Tree) add(path string, p parsed) {
	t.Documents += p.written
	for _, doc := range p.docs {
		if o := doc.usable(); o != nil {
			t.nodes[o.Metadata().Origin] = doc.node
		}
	}
	for _, doc := range slices.Concat(p.docs, p.unread) {
		t.annotate(doc.key, doc.node)
		t.documents[path] = append(t.documents[path], doc.node)
		if doc.problems.HasErrors() {
			t.Broken[doc.key] = true
		}
		if doc.draft != nil {
			t.Drafts[doc.key] = doc.draft
			t.other(path, doc.key, doc.node)
		}
		if isGatewayAPI(doc.key.Kind) && len(doc.content) > 0 {
			t.Raw[doc.key] = doc.content
			t.other(path, doc.key, doc.node)
		}
	}
	for _, w := range p.templates {
		t.Templates = append(t.Templates, w.Workload)
		t.Pods[w.Key] = w.pod
		t.annotate(w.Key, w.node)
		t.documents[path] = append(t.documents[path], w.node)
		t.other(path, w.Key, w.node)
	}
}

// annotate stores the value of the annotation that suppresses messages.
func (t *Tree) annotate(k model.Key, n *yaml.Node) {
	if v := entry(entry(entry(n, "metadata"), "annotations"), code.AnnotationSuppress); v != nil && v.Kind == yaml.ScalarNode {
		t.suppressed[k] = v.Value
	}
}

// Find returns the nodes of the name and the value that a problem is about; nil: they are not known.
func (t *Tree) Find(p problem.Problem) (name, value *yaml.Node) {
	for _, doc := range t.documents[p.File] {
		if name, value = schema.Find(doc, p.Field); value != nil && schema.LineOf(doc, p.Field) == p.Line {
			return name, value
		}
	}
	return nil, nil
}

// Suppressed returns the value of an object's annotation galley.istio.io/analyze-suppress; "": it has none.
func (t *Tree) Suppressed(k model.Key) string { return t.suppressed[k] }

// Has reports whether an object is in the tree.
func (t *Tree) Has(k model.Key) bool {
	if _, other := t.others[k]; other {
		return true
	}
	_, found := slices.BinarySearchFunc(t.Objects, k, func(o model.Object, k model.Key) int { return o.Metadata().Key.Compare(k) })
	return found
}

// isGatewayAPI reports whether kind is one of the Gateway API whose references are checked.
func isGatewayAPI(kind model.Kind) bool {
	return kind.IsKubernetesRoute() || kind == model.KindKubernetesGateway || kind == model.KindListenerSet || kind == model.KindGatewayClass
}

// other stores the location of what is not among Objects.
func (t *Tree) other(path string, k model.Key, n *yaml.Node) {
	origin := fmt.Sprintf("%s:%d", path, schema.LineOf(n, ""))
	t.others[k], t.nodes[origin] = origin, n
}

// Locate adds file and line to problems of objects in the tree.
func (t *Tree) Locate(problems problem.List) {
	origins := maps.Clone(t.others)
	for _, o := range t.Objects {
		origins[o.Metadata().Key] = o.Metadata().Origin
	}
	for i := range problems {
		p := &problems[i]
		origin, ok := origins[p.Object]
		if !ok || p.File != "" {
			continue
		}
		p.File, p.Line = splitOrigin(origin)
		if line := schema.LineOf(t.nodes[origin], p.Field); line > 0 {
			p.Line = line
		}
	}
}

// ioProblem reports a path that cannot be read.
func ioProblem(path string, err error) problem.Problem {
	return problem.Problem{
		Severity: problem.SeverityError, Code: code.Unreadable, File: path,
		Message: "cannot be read: " + err.Error(),
	}
}
