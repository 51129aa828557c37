// Package goduration rewrites durations in the JSON of protobuf messages. Istio reads Go's, such as 500ms or 1m; protojson takes only
// seconds. It is pure.
package goduration

import (
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
)

const durationName protoreflect.FullName = "google.protobuf.Duration"

// ToSeconds rewrites the durations in a message of type d, given as the values of encoding/json, and in the messages that are packed in it.
// It changes maps and lists of value, and leaves what it cannot read.
func ToSeconds(value any, d protoreflect.MessageDescriptor) any {
	object, isObject := value.(map[string]any)
	switch {
	case d.FullName() == durationName:
		return seconds(value)
	case !isObject:
	case d.FullName() == "google.protobuf.Any":
		packed(object)
	case d.FullName().Parent() != "google.protobuf": // values of Struct and the like are not of a type
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			for _, name := range []string{f.JSONName(), f.TextName()} {
				if v, ok := object[name]; ok {
					object[name] = field(v, f)
				}
			}
		}
	}
	return value
}

func field(value any, f protoreflect.FieldDescriptor) any {
	of := f.Message()
	if f.IsMap() {
		of = f.MapValue().Message()
	}
	if of == nil {
		return value
	}
	switch parts := value.(type) {
	case []any:
		for i := range parts {
			parts[i] = ToSeconds(parts[i], of)
		}
		return parts
	case map[string]any:
		if f.IsMap() {
			for k := range parts {
				parts[k] = ToSeconds(parts[k], of)
			}
			return parts
		}
	}
	return ToSeconds(value, of)
}

// packed rewrites a packed message. Types with a JSON form of their own have it in the field "value".
func packed(object map[string]any) {
	url, _ := object["@type"].(string)
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return
	}
	if d := t.Descriptor(); d.FullName().Parent() != "google.protobuf" {
		ToSeconds(object, d)
	} else if inner, ok := object["value"]; ok {
		object["value"] = ToSeconds(inner, d)
	}
}

func seconds(value any) any {
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		return value
	}
	encoded, err := protojson.Marshal(durationpb.New(d))
	if err != nil {
		return value
	}
	return strings.Trim(string(encoded), `"`)
}
