// Package proxyconfig reads Istio's ProxyConfig as people write it: in annotations of Pods and in flags. It is pure.
package proxyconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Parse reads YAML or JSON; where names the source in errors. Fields that are not known are errors.
func Parse(text, where string) (*meshconfig.ProxyConfig, error) {
	return parse(text, where, protojson.UnmarshalOptions{})
}

// ParseAny does the same, and accepts unknown fields, such as those of newer versions.
func ParseAny(text, where string) (*meshconfig.ProxyConfig, error) {
	return parse(text, where, protojson.UnmarshalOptions{DiscardUnknown: true})
}

func parse(text, where string, how protojson.UnmarshalOptions) (*meshconfig.ProxyConfig, error) {
	document, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: invalid YAML: %w", where, err)
	}
	pc := &meshconfig.ProxyConfig{}
	if string(document) == "null" {
		return pc, nil
	}
	if err := how.Unmarshal(document, pc); err != nil {
		return nil, fmt.Errorf("%s: invalid ProxyConfig: %s", where, explain(document, err))
	}
	return pc, nil
}

// shown is the number of faults in an error.
const shown = 5

// explain describes the faults of a document field by field; err is the parser's error.
func explain(document []byte, err error) string {
	var tree any
	_ = json.Unmarshal(document, &tree) // it was made from YAML
	list := faults("", tree, (&meshconfig.ProxyConfig{}).ProtoReflect().Descriptor())
	switch {
	case len(list) == 0:
		return clean(err)
	case len(list) > shown:
		list = append(list[:shown], fmt.Sprintf("and %d more", len(list)-shown))
	}
	return strings.Join(list, "; ")
}

// clean drops the prefix with the parser's name, and its non-breaking spaces.
func clean(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	text = strings.TrimPrefix(text, "proto: ")
	if _, after, ok := strings.Cut(text, "): "); ok && strings.HasPrefix(text, "(line") {
		return after
	}
	return text
}
