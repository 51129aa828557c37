package envoyext

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// isTypedStruct reports whether a message is packed as a struct. The two types have the same fields.
func isTypedStruct(url string) bool {
	name := typeName(url)
	return name == "udpa.type.v1.TypedStruct" || name == "xds.type.v3.TypedStruct"
}

// structType is the type that a TypedStruct stands for, and the field that names it.
func structType(fields map[string]*structpb.Value) (field, url string) {
	for _, field := range []string{"type_url", "typeUrl"} {
		if v := fields[field].GetStringValue(); v != "" {
			return field, v
		}
	}
	return "type_url", ""
}

// unpacked replaces each TypedStruct in a value, however deep, by the message that it stands
// for. Two messages of one type can be merged, two structs cannot as they should.
func unpacked(v *structpb.Value) *structpb.Value {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		return structpb.NewStructValue(unpackedStruct(k.StructValue))
	case *structpb.Value_ListValue:
		out := &structpb.ListValue{}
		for _, e := range k.ListValue.GetValues() {
			out.Values = append(out.Values, unpacked(e))
		}
		return structpb.NewListValue(out)
	}
	return v
}

func unpackedStruct(s *structpb.Struct) *structpb.Struct {
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(s.GetFields()))}
	for key, v := range s.GetFields() {
		out.Fields[key] = unpacked(v)
	}
	if !isTypedStruct(out.Fields["@type"].GetStringValue()) {
		return out
	}
	_, url := structType(out.Fields)
	inner := &structpb.Struct{Fields: map[string]*structpb.Value{"@type": structpb.NewStringValue(url)}}
	if strings.HasPrefix(typeName(url), "google.protobuf.") {
		inner.Fields["value"] = out.Fields["value"]
	} else {
		maps.Copy(inner.Fields, out.Fields["value"].GetStructValue().GetFields())
	}
	return inner
}

// EachAny calls f for each packed message of m, not for those inside them, and stops at the
// first error.
func EachAny(m protoreflect.Message, f func(*anypb.Any) error) error {
	if a, ok := m.Interface().(*anypb.Any); ok {
		return f(a)
	}
	var err error
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		err = eachAnyIn(fd, v, f)
		return err == nil
	})
	return err
}

func eachAnyIn(fd protoreflect.FieldDescriptor, v protoreflect.Value, f func(*anypb.Any) error) (err error) {
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() == nil {
			return nil
		}
		v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
			err = EachAny(e.Message(), f)
			return err == nil
		})
		return err
	case fd.Message() == nil:
		return nil
	case fd.IsList():
		for i := range v.List().Len() {
			if err := EachAny(v.List().Get(i).Message(), f); err != nil {
				return err
			}
		}
		return nil
	}
	return EachAny(v.Message(), f)
}

// Validate holds a message, and all that is packed in it, against the rules of Envoy's API.
func Validate(m proto.Message) error {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	return EachAny(m.ProtoReflect(), func(a *anypb.Any) error {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return err
		}
		return Validate(inner)
	})
}
