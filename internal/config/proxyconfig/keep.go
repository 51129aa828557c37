package proxyconfig

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Keep returns the YAML of a ProxyConfig with only some fields, by their names in YAML, and the names of the others. A text without
// others stays as it is.
func Keep(text, where string, fields []string) (kept string, others []string, err error) {
	config, unknown, err := parse(text, where)
	if err != nil {
		return "", nil, err
	}
	for _, u := range unknown {
		name, _, _ := strings.Cut(u, ":")
		others = append(others, name)
	}
	m := config.ProtoReflect()
	var drop []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(fields, f.JSONName()) {
			drop, others = append(drop, f), append(others, f.JSONName())
		}
		return true
	})
	if len(others) == 0 {
		return text, nil, nil
	}
	for _, f := range drop {
		m.Clear(f)
	}
	slices.Sort(others)
	document, err := protojson.Marshal(config)
	if err != nil {
		return "", nil, err
	}
	var out bytes.Buffer // protojson varies white space
	if err := json.Compact(&out, document); err != nil {
		return "", nil, err
	}
	return out.String(), others, nil
}
