package file

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// replaces reports whether the objects of Change are those of a file that is not YAML: by what its text names, or, if it names nothing,
// by the name of the file.
func (o Options) replaces(path string, data []byte, changed map[model.Key]bool, files []string) bool {
	named := namedIn(data)
	if len(named) == 0 {
		return slices.ContainsFunc(files, func(f string) bool { return filepath.Base(f) == filepath.Base(path) })
	}
	for _, n := range named {
		found := false
		for k := range changed {
			found = found || n.is(k, o.Decoder.DefaultNamespace)
		}
		if !found {
			return false
		}
	}
	return true
}

// namedObject is what the text of a document names.
type namedObject struct{ kind, namespace, name string }

func (n namedObject) is(k model.Key, defaultNamespace string) bool {
	kind := string(k.Kind)
	if k.Kind == model.KindKubernetesGateway {
		kind = string(model.KindGateway)
	}
	ns := n.namespace
	if ns == "" {
		ns = defaultNamespace
	}
	return n.kind == kind && n.name == k.Name && (k.Namespace == "" || k.Namespace == ns)
}

// Lines of documents that need not be YAML.
var (
	separator   = regexp.MustCompile(`(?m)^---.*$`)
	kindLine    = regexp.MustCompile(`(?m)^kind:[ \t]*["']?(\w+)`)
	metadata    = regexp.MustCompile(`(?m)^metadata:[ \t]*(\{[^}]*\})?[^\n]*\n?((?:[ \t]+[^\n]*\n?)*)`)
	nameOf      = regexp.MustCompile(`(?m)(?:^[ \t]*|[{,][ \t]*)name:[ \t]*["']?([^\s,}"']+)`)
	namespaceOf = regexp.MustCompile(`(?m)(?:^[ \t]*|[{,][ \t]*)namespace:[ \t]*["']?([^\s,}"']+)`)
)

// namedIn returns the objects that the text of a file names, document by document; none: it is not clear.
func namedIn(data []byte) []namedObject {
	var out []namedObject
	for _, doc := range separator.Split(string(bytes.ReplaceAll(data, []byte("\r"), nil)), -1) {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		kind, meta := kindLine.FindStringSubmatch(doc), metadata.FindStringSubmatch(doc)
		if kind == nil || meta == nil {
			return nil
		}
		text := meta[1]
		if text == "" {
			text = ownLines(meta[2])
		}
		name := nameOf.FindStringSubmatch(text)
		if name == nil {
			return nil
		}
		n := namedObject{kind: kind[1], name: name[1]}
		if ns := namespaceOf.FindStringSubmatch(text); ns != nil {
			n.namespace = ns[1]
		}
		out = append(out, n)
	}
	return out
}

// ownLines returns the lines with the indentation of the first one, without braces: labels may have a name, too.
func ownLines(block string) string {
	var out []string
	first := -1
	for line := range strings.Lines(block) {
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if first < 0 {
			first = indent
		}
		if indent == first && !strings.Contains(line, "{") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
