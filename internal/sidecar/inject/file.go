package inject

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// templatePaths are the paths of Pod templates in objects, by kind.
var templatePaths = map[string][]string{
	"Pod":                   {},
	"Deployment":            {"spec", "template"},
	"StatefulSet":           {"spec", "template"},
	"DaemonSet":             {"spec", "template"},
	"ReplicaSet":            {"spec", "template"},
	"ReplicationController": {"spec", "template"},
	"Job":                   {"spec", "template"},
	"CronJob":               {"spec", "jobTemplate", "spec", "template"},
}

// Noted is called with what is remarkable about an object: why it has no sidecar, or which label has no effect.
type Noted func(object, note string)

// File copies YAML (or JSON) of any number of documents, and adds sidecars to Pods and Pod templates. It copies other
// documents unchanged.
func (c *Config) File(in io.Reader, out io.Writer, noted Noted) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	empty := true
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) && empty {
			return errNothing
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		text, some, err := c.document(doc, noted)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		empty = empty && !some
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s\n---\n", bytes.TrimRight(text, "\n")); err != nil {
			return err
		}
	}
}

// Errors about a file without objects, and about a document.
var (
	errNothing  = errors.New("no object found")
	errNoObject = errors.New("not an object: begin the document with apiVersion and kind")
)

// document copies one document. some reports whether it contains an object.
func (c *Config) document(doc []byte, noted Noted) (text []byte, some bool, err error) {
	var value any
	if err := yaml.Unmarshal(doc, &value); err != nil {
		return nil, false, err
	}
	object, ok := value.(map[string]any)
	switch {
	case value == nil:
		return doc, false, nil
	case !ok:
		return nil, false, errNoObject
	}
	changed, err := c.object(object, noted)
	if err != nil || !changed {
		return doc, true, err
	}
	text, err = yaml.Marshal(object)
	return text, true, err
}

// object adds sidecars to an object, or to the objects of a list.
func (c *Config) object(o map[string]any, noted Noted) (changed bool, err error) {
	if items, ok := o["items"].([]any); ok {
		for i, item := range items {
			m, ok := item.(map[string]any)
			if !ok {
				continue
			}
			one, err := c.object(m, noted)
			if err != nil {
				return false, fmt.Errorf("items[%d]: %w", i, err)
			}
			changed = changed || one
		}
		return changed, nil
	}
	kind, _ := o["kind"].(string)
	path, known := templatePaths[kind]
	if !known {
		return false, nil
	}
	meta := metav1.ObjectMeta{}
	if err := into(o["metadata"], &meta); err != nil {
		return false, fmt.Errorf("%s: metadata: %w", kind, err)
	}
	version, _ := o["apiVersion"].(string)
	owner := Owner{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, Namespace: cmp.Or(meta.Namespace, c.FileNamespace), Name: meta.Name}
	name := fmt.Sprintf("%s %s", kind, cmp.Or(meta.Name, meta.GenerateName))
	changed, err = c.injectAt(o, path, owner, func(note string) { noted(name, note) })
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return changed, nil
}

// injectAt adds a sidecar to the Pod at a path of an object.
func (c *Config) injectAt(o map[string]any, path []string, owner Owner, note func(string)) (changed bool, err error) {
	at := o
	for _, field := range path {
		next, ok := at[field].(map[string]any)
		if !ok {
			return false, fmt.Errorf("field %s: missing: add it", field)
		}
		at = next
	}
	pod := &corev1.Pod{}
	if err := into(at, pod); err != nil {
		return false, err
	}
	if len(path) == 0 {
		named := *pod
		named.Namespace = cmp.Or(pod.Namespace, c.FileNamespace)
		owner = OwnerOf(&named)
	}
	own := pod.Namespace
	pod.Namespace = cmp.Or(pod.Namespace, owner.Namespace, c.FileNamespace)
	if text := IgnoredLabel(pod); text != "" {
		note(text)
	}
	if ok, why := c.Decide(pod); !ok {
		note("no sidecar: " + why)
		return false, nil
	}
	for _, failing := range FailingCommands(&pod.Spec) {
		note(failing.Field + ": " + failing.Message())
	}
	injected, err := c.Inject(pod, owner)
	if err != nil {
		return false, err
	}
	injected.Namespace = own
	result, err := asMap(injected)
	if err != nil {
		return false, err
	}
	for _, field := range []string{"metadata", "spec"} {
		dropEmpty(result[field])
		at[field] = result[field]
	}
	return true, nil
}

// into decodes a value of YAML to a type.
func into(v, out any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}
