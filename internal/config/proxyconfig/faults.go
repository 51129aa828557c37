package proxyconfig

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/moonsail/moonsail/internal/config/spelling"
)

// fault is something in a document that a message does not take.
type fault struct {
	text    string
	unknown bool // the field is not known
}

type faultList []fault

// texts separates unknown fields from values that are wrong.
func (l faultList) texts() (unknown, wrong []string) {
	for _, f := range l {
		if f.unknown {
			unknown = append(unknown, f.text)
		} else {
			wrong = append(wrong, f.text)
		}
	}
	return unknown, wrong
}

func wrongValue(text string) faultList { return faultList{{text: text}} }

// faults lists what in a document a message does not take, each with its field; by the names of fields.
func faults(at string, tree any, d protoreflect.MessageDescriptor) (out faultList) {
	object, ok := tree.(map[string]any)
	if !ok {
		return wrongValue(strings.TrimPrefix(at+": ", ": ") + "must be an object with fields such as " + spelling.Sample(names(d)) + got(tree))
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		field := strings.TrimPrefix(at+"."+name, ".")
		f := fieldOf(d, name)
		switch {
		case f == nil:
			out = append(out, fault{field + ": unknown field" + hint(name, d), true})
		case object[name] != nil:
			out = append(out, inField(field, object[name], f)...)
		}
	}
	return out
}

// inField describes the faults in the value of a field.
func inField(at string, value any, f protoreflect.FieldDescriptor) faultList {
	if fits(f, value) {
		return nil
	}
	list, isList := value.([]any)
	switch {
	case f.IsList() && isList:
		var out faultList
		for i, v := range list {
			if !fits(f, []any{v}) {
				out = append(out, ofKind(at+"["+strconv.Itoa(i)+"]", v, f)...)
			}
		}
		return out
	case f.IsList():
		return wrongValue(at + ": must be a list" + got(value))
	case f.IsMap():
		return inMap(at, value, f)
	}
	return ofKind(at, value, f)
}

func inMap(at string, value any, f protoreflect.FieldDescriptor) (out faultList) {
	entries, ok := value.(map[string]any)
	if !ok {
		return wrongValue(at + ": must be a map of names to values" + got(value))
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if !fits(f, map[string]any{key: entries[key]}) {
			out = append(out, ofKind(at+"["+strconv.Quote(key)+"]", entries[key], f.MapValue())...)
		}
	}
	return out
}

// ofKind describes the faults in one value of a field, of a list or of a map.
func ofKind(at string, value any, f protoreflect.FieldDescriptor) faultList {
	if f.Message() != nil && f.Message().ParentFile().Package() != "google.protobuf" {
		return faults(at, value, f.Message())
	}
	return wrongValue(at + ": must be " + noun(f) + got(value))
}

// fits reports whether a field takes a value.
func fits(f protoreflect.FieldDescriptor, value any) bool {
	document, err := json.Marshal(map[string]any{f.JSONName(): value})
	return err == nil && protojson.Unmarshal(document, dynamicpb.NewMessage(f.ContainingMessage())) == nil
}

// noun is what messages call a value of a field.
func noun(f protoreflect.FieldDescriptor) string {
	if m := f.Message(); m != nil {
		if inner := m.Fields().ByName("value"); inner != nil { // Int32Value and the like
			return noun(inner)
		}
		return "a duration such as 1.5s"
	}
	switch f.Kind() {
	case protoreflect.EnumKind:
		var values []string
		for i := range f.Enum().Values().Len() {
			values = append(values, string(f.Enum().Values().Get(i).Name()))
		}
		return "one of " + strings.Join(values, ", ")
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.StringKind, protoreflect.BytesKind:
		return "a string"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number"
	}
	return "a whole number"
}

func got(value any) string {
	document, err := json.Marshal(value)
	if err != nil || len(document) > 60 {
		return ""
	}
	return ", got " + string(document)
}

// fieldOf finds a field by either of its names.
func fieldOf(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	return d.Fields().ByTextName(name)
}

func names(d protoreflect.MessageDescriptor) (out []string) {
	for i := range d.Fields().Len() {
		out = append(out, d.Fields().Get(i).JSONName())
	}
	return out
}

// hint returns the field that was probably meant: one with a similar name, or one of that name inside of another.
func hint(name string, d protoreflect.MessageDescriptor) string {
	if near := spelling.DidYouMean(name, names(d)); near != "" {
		return near
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if inner := f.Message(); inner != nil && !f.IsMap() {
			if found := fieldOf(inner, name); found != nil {
				return "; did you mean " + strconv.Quote(f.JSONName()+"."+found.JSONName()) + "?"
			}
		}
	}
	return "; known are " + spelling.Sample(names(d))
}
