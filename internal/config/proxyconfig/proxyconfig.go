// Package proxyconfig reads Istio's ProxyConfig as people write it: in annotations of Pods and in flags. It is pure.
package proxyconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/config/goduration"
)

// Parse reads YAML or JSON; where names the source in errors. Fields that are not known are errors.
func Parse(text, where string) (*meshconfig.ProxyConfig, error) {
	pc, unknown, err := parse(text, where)
	if err == nil && len(unknown) > 0 {
		return nil, invalid(where, unknown)
	}
	return pc, err
}

// ParseAny does the same, and accepts unknown fields, such as those of newer versions.
func ParseAny(text, where string) (*meshconfig.ProxyConfig, error) {
	pc, _, err := parse(text, where)
	return pc, err
}

// Unknown describes the fields of a text that are not known.
func Unknown(text string) []string {
	_, unknown, _ := parse(text, "")
	return unknown
}

// parse reads a text, and describes its unknown fields.
func parse(text, where string) (pc *meshconfig.ProxyConfig, unknown []string, err error) {
	document, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: invalid YAML: %w", where, err)
	}
	pc = &meshconfig.ProxyConfig{}
	if string(document) == "null" {
		return pc, nil, nil
	}
	d := pc.ProtoReflect().Descriptor()
	tree, document, err := inSeconds(document, d)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: invalid ProxyConfig: %w", where, err)
	}
	unknown, wrong := faults("", tree, d).texts()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(document, pc); err != nil && len(wrong) == 0 {
		wrong = []string{clean(err)}
	}
	if len(wrong) > 0 { // protojson ignores unknown values of enums, too
		return nil, unknown, invalid(where, append(wrong, unknown...))
	}
	return pc, unknown, nil
}

// inSeconds returns a document with durations as protojson takes them, as a tree and as JSON.
func inSeconds(document []byte, d protoreflect.MessageDescriptor) (tree any, out []byte, err error) {
	numbers := json.NewDecoder(bytes.NewReader(document))
	numbers.UseNumber()
	if err := numbers.Decode(&tree); err != nil {
		return nil, nil, err
	}
	tree = goduration.ToSeconds(tree, d)
	out, err = json.Marshal(tree)
	return tree, out, err
}

// shown is the number of faults in an error.
const shown = 5

func invalid(where string, faults []string) error {
	if len(faults) > shown {
		faults = append(faults[:shown:shown], fmt.Sprintf("and %d more", len(faults)-shown))
	}
	return fmt.Errorf("%s: invalid ProxyConfig: %s", where, strings.Join(faults, "; "))
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
