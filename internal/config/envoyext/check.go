package envoyext

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
)

// object checks the fields of a message.
func (c *checker) object(at string, value *structpb.Struct, d protoreflect.MessageDescriptor) {
	seen := map[protoreflect.Name]string{}
	for _, key := range slices.Sorted(maps.Keys(value.GetFields())) {
		if key == "@type" {
			continue
		}
		fd := d.Fields().ByJSONName(key)
		if fd == nil {
			fd = d.Fields().ByName(protoreflect.Name(key))
		}
		if fd == nil {
			c.warn(join(at, key), "unknown field of %s; it is left out", d.FullName())
			continue
		}
		if isNull(value.Fields[key]) {
			continue
		}
		of := fd.Name()
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			of = o.Name() + " " // no field's name
		}
		if other, twice := seen[of]; twice {
			c.fatal(join(at, key), "cannot be set beside %s; keep one of them", other)
		}
		seen[of] = key
		c.field(join(at, key), value.Fields[key], fd)
	}
	if d.FullName() == "envoy.extensions.wasm.v3.VmConfig" {
		c.runtime(join(at, "runtime"), value.GetFields()["runtime"].GetStringValue())
	}
}

// runtime checks that of a WASM module. What runs on the null runtime is built into Envoy,
// and nothing is: "envoy.wasm.stats" and the like are Istio's own.
func (c *checker) runtime(at, runtime string) {
	switch {
	case runtime == "":
	case !HasName("envoy.wasm.runtime", runtime):
		c.fatal(at, "Envoy %s has no runtime %q; use envoy.wasm.runtime.v8", Version, runtime)
	case runtime == "envoy.wasm.runtime.null":
		c.fatal(at, "Envoy %s has no plugin built in that %s could run; only Istio's own proxy has envoy.wasm.stats and the like", Version, runtime)
	}
}

func isNull(v *structpb.Value) bool {
	_, null := v.GetKind().(*structpb.Value_NullValue)
	return null || v.GetKind() == nil
}

func (c *checker) field(at string, v *structpb.Value, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsMap():
		m := v.GetStructValue()
		if m == nil {
			c.fatal(at, "must be a map, got %s", describe(v))
		}
		for _, key := range slices.Sorted(maps.Keys(m.GetFields())) {
			c.single(at+"["+key+"]", m.Fields[key], fd.MapValue())
		}
	case fd.IsList():
		l := v.GetListValue()
		if l == nil {
			c.fatal(at, "must be a list, got %s; put \"- \" before each element", describe(v))
		}
		for i, e := range l.GetValues() {
			c.single(fmt.Sprintf("%s[%d]", at, i), e, fd)
		}
	default:
		c.single(at, v, fd)
	}
}

// single checks one value, or one element of a list or a map.
func (c *checker) single(at string, v *structpb.Value, fd protoreflect.FieldDescriptor) {
	if fd.Message() == nil {
		c.scalar(at, v, fd)
		return
	}
	c.message(at, v, fd.Message())
}

// message checks a message. Some messages have a special JSON form.
func (c *checker) message(at string, v *structpb.Value, d protoreflect.MessageDescriptor) {
	switch d.FullName() {
	case "google.protobuf.Any":
		c.packed(at, v)
		return
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return
	case "google.protobuf.Duration":
		c.duration(at, v)
		return
	case "google.protobuf.Timestamp", "google.protobuf.FieldMask":
		if _, ok := v.GetKind().(*structpb.Value_StringValue); !ok {
			c.fatal(at, "must be a string, got %s", describe(v))
		}
		return
	}
	if d.FullName().Parent() == "google.protobuf" && strings.HasSuffix(string(d.Name()), "Value") {
		c.scalar(at, v, d.Fields().ByName("value"))
		return
	}
	if v.GetStructValue() == nil {
		c.fatal(at, "must be an object (%s), got %s", d.FullName(), describe(v))
		return
	}
	c.object(at, v.GetStructValue(), d)
}

func (c *checker) duration(at string, v *structpb.Value) {
	if _, err := time.ParseDuration(v.GetStringValue()); err != nil {
		c.fatal(at, "must be a duration such as 500ms, 1.5s or 2m, got %s", describe(v))
	}
}

func (c *checker) scalar(at string, v *structpb.Value, fd protoreflect.FieldDescriptor) {
	_, str := v.GetKind().(*structpb.Value_StringValue)
	number, num := v.GetKind().(*structpb.Value_NumberValue)
	var ok bool
	var want string
	switch fd.Kind() {
	case protoreflect.BoolKind:
		_, ok = v.GetKind().(*structpb.Value_BoolValue)
		want = "true or false"
	case protoreflect.StringKind:
		ok, want = str, "a string"
	case protoreflect.BytesKind:
		_, err := base64.StdEncoding.DecodeString(v.GetStringValue())
		ok, want = str && err == nil, "bytes in base64"
	case protoreflect.EnumKind:
		ok = str && fd.Enum().Values().ByName(protoreflect.Name(v.GetStringValue())) != nil ||
			num && fd.Enum().Values().ByNumber(protoreflect.EnumNumber(number.NumberValue)) != nil
		want = "one of " + enumNames(fd.Enum())
	default:
		_, err := strconv.ParseFloat(v.GetStringValue(), 64)
		ok, want = num || str && err == nil, "a number"
	}
	if !ok {
		c.fatal(at, "must be %s, got %s", want, describe(v))
	}
}

func enumNames(d protoreflect.EnumDescriptor) string {
	var out []string
	for i := range d.Values().Len() {
		out = append(out, string(d.Values().Get(i).Name()))
	}
	return strings.Join(out, ", ")
}

// packed checks a message with its type.
func (c *checker) packed(at string, v *structpb.Value) {
	fields := v.GetStructValue().GetFields()
	url := fields["@type"].GetStringValue()
	if url == "" {
		c.fatal(at, "has no @type; name the type, such as type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua")
		return
	}
	if isTypedStruct(typeName(url)) {
		c.typedStruct(at, fields)
	} else if d := c.typeOf(join(at, "@type"), typeName(url)); d != nil {
		c.packedFields(at, v, d)
	}
}

// packedFields: types with a JSON form of their own have it in the field "value".
func (c *checker) packedFields(at string, v *structpb.Value, d protoreflect.MessageDescriptor) {
	if d.FullName().Parent() != "google.protobuf" || d.Name() == "Empty" {
		c.message(at, v, d)
		return
	}
	if inner, ok := v.GetStructValue().GetFields()["value"]; ok {
		c.message(join(at, "value"), inner, d)
	}
}

// typedStruct checks a message that is packed as a struct: as what it will be unpacked to.
func (c *checker) typedStruct(at string, fields map[string]*structpb.Value) {
	key, url := structType(fields)
	if url == "" {
		c.fatal(at, "has no type_url; name the type of the struct")
		return
	}
	d := c.typeOf(join(at, key), typeName(url))
	if d == nil || fields["value"] == nil || isNull(fields["value"]) {
		return
	}
	c.message(join(at, "value"), fields["value"], d)
}

// typeOf finds a type that Envoy has, too.
func (c *checker) typeOf(at, name string) protoreflect.MessageDescriptor {
	if strings.HasPrefix(name, "envoy.") && strings.Contains(name, ".v2.") {
		c.fatal(at, "%s is of version 2 of Envoy's API, which Envoy %s does not have; write the type of v3", name, Version)
		return nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil || isEnvoys(name) && !HasType(name) {
		c.fatal(at, "Envoy %s has no extension with configuration of type %s", Version, name)
		return nil
	}
	return t.Descriptor()
}

// isEnvoys reports whether extensions may be configured by a type. Types of protobuf and xDS are only parts of others.
func isEnvoys(name string) bool {
	return !strings.HasPrefix(name, "google.protobuf.") && !strings.HasPrefix(name, "xds.")
}

// describe returns what a value is, for messages.
func describe(v *structpb.Value) string {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		return "an object"
	case *structpb.Value_ListValue:
		return "a list"
	case *structpb.Value_NumberValue:
		return fmt.Sprintf("the number %v", k.NumberValue)
	case *structpb.Value_BoolValue:
		return fmt.Sprintf("the boolean %v", k.BoolValue)
	case *structpb.Value_StringValue:
		return fmt.Sprintf("the string %q", k.StringValue)
	}
	return "nothing"
}
