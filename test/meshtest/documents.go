package meshtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Documents returns the objects of a test file, to be written into a cluster.
func Documents(path string) ([]*unstructured.Unstructured, error) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, part := range a.Files {
		if !strings.HasPrefix(part.Name, "input") {
			continue
		}
		found, err := ParseDocuments(part.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, part.Name, err)
		}
		out = append(out, found...)
	}
	return out, nil
}

// ParseDocuments returns the objects of a YAML text.
func ParseDocuments(text []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc map[string]any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(doc) == 0 {
			continue
		}
		text, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(text, &o.Object); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
}
