package schema

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// fieldType is what a value in a document may look like.
type fieldType uint8

const (
	anyType fieldType = iota
	objectType
	listType
	mapType
	stringType
	intType
	uintType
	numberType
	boolType
	enumType
	durationType // "1.5s", as proto JSON has it
	bytesType
	intOrStringType
)

// Schema describes the values that one type takes in YAML. Shapes are made when they
// are first needed, since some types contain themselves.
type Schema struct {
	kind   fieldType
	fields map[string]*schemaField // formObject: by every spelling that is accepted
	elem   func() *Schema          // formList, formMap
	values []string                // formEnum
	bits   int                     // formInt, formUint
	lax    bool                    // numbers may be quoted, as in proto JSON
	oneofs map[string][]string     // formObject: fields of which one may be set
}

type schemaField struct {
	name   string // as messages spell it
	schema func() *Schema
}

// names lists the fields in the spelling of messages.
func (s *Schema) names() []string {
	out := make([]string, 0, len(s.fields))
	for k, f := range s.fields {
		if k == f.name {
			out = append(out, k)
		}
	}
	return out
}

// Field returns the schema of a field that exists.
func (s *Schema) Field(name string) *Schema { return s.fields[name].schema() }

// HasList reports whether a field is a list.
func (s *Schema) HasList(field []problem.Step) bool {
	for _, step := range field {
		switch f := s.fields[step.Name]; {
		case s.kind == objectType && f != nil:
			s = f.schema()
		case s.kind == mapType || s.kind == listType:
			s = s.elem()
		default:
			return false
		}
	}
	return s.kind == listType
}

// Known returns the fields of an object that exist, in their JSON spelling.
func (s *Schema) Known(tree any) map[string]any {
	out := map[string]any{}
	top, _ := tree.(map[string]any)
	for k, value := range top {
		if f := s.fields[k]; f != nil {
			out[f.name] = value
		}
	}
	return out
}

// byType and protoShapes keep what was made; they only grow, to the size of the APIs.
var byType, byMessage sync.Map

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	protoMessage    = reflect.TypeFor[protoreflect.ProtoMessage]()
	goSpecials      = map[reflect.Type]fieldType{
		reflect.TypeFor[metav1.Time]():        stringType,
		reflect.TypeFor[metav1.MicroTime]():   stringType,
		reflect.TypeFor[intstr.IntOrString](): intOrStringType,
	}
)

// OfType describes a Go type by its JSON tags, as Kubernetes' types have them.
func OfType(t reflect.Type) *Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := byType.Load(t); ok {
		return s.(*Schema)
	}
	s, _ := byType.LoadOrStore(t, newOfType(t))
	return s.(*Schema)
}

func newOfType(t reflect.Type) *Schema {
	if f, ok := goSpecials[t]; ok {
		return &Schema{kind: f}
	}
	if p := reflect.PointerTo(t); p.Implements(protoMessage) {
		return OfMessage(reflect.New(t).Interface().(protoreflect.ProtoMessage).ProtoReflect().Descriptor())
	} else if p.Implements(jsonUnmarshaler) {
		return &Schema{kind: anyType}
	}
	elem := func() *Schema { return OfType(t.Elem()) }
	switch t.Kind() {
	case reflect.Struct:
		s := &Schema{kind: objectType, fields: map[string]*schemaField{}}
		addGoFields(s, t)
		return s
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return &Schema{kind: bytesType}
		}
		return &Schema{kind: listType, elem: elem}
	case reflect.Map:
		return &Schema{kind: mapType, elem: elem}
	case reflect.String:
		return &Schema{kind: stringType}
	case reflect.Bool:
		return &Schema{kind: boolType}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &Schema{kind: intType, bits: t.Bits()}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Schema{kind: uintType, bits: t.Bits()}
	case reflect.Float32, reflect.Float64:
		return &Schema{kind: numberType}
	}
	return &Schema{kind: anyType}
}

func addGoFields(s *Schema, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(opts, "inline")):
			addGoFields(s, f.Type)
		default:
			if name == "" {
				name = f.Name
			}
			s.fields[name] = &schemaField{name: name, schema: func() *Schema { return OfType(f.Type) }}
		}
	}
}

// OfMessage describes a message by its descriptor, in proto JSON.
func OfMessage(d protoreflect.MessageDescriptor) *Schema {
	if s, ok := byMessage.Load(d.FullName()); ok {
		return s.(*Schema)
	}
	s, _ := byMessage.LoadOrStore(d.FullName(), newOfMessage(d))
	return s.(*Schema)
}

func newOfMessage(d protoreflect.MessageDescriptor) *Schema {
	switch d.FullName() {
	case "google.protobuf.Duration":
		return &Schema{kind: durationType}
	case "google.protobuf.Timestamp":
		return &Schema{kind: stringType}
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.Any":
		return &Schema{kind: anyType}
	}
	if d.FullName().Parent() == "google.protobuf" && strings.HasSuffix(string(d.Name()), "Value") {
		return ofScalar(d.Fields().ByName("value"))
	}
	s := &Schema{kind: objectType, fields: map[string]*schemaField{}, oneofs: map[string][]string{}}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &schemaField{name: fd.JSONName(), schema: func() *Schema { return ofField(fd) }}
		s.fields[fd.JSONName()] = f
		s.fields[string(fd.Name())] = f
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			s.oneofs[string(o.Name())] = append(s.oneofs[string(o.Name())], fd.JSONName())
		}
	}
	return s
}

func ofField(fd protoreflect.FieldDescriptor) *Schema {
	switch {
	case fd.IsMap():
		return &Schema{kind: mapType, elem: func() *Schema { return ofScalar(fd.MapValue()) }}
	case fd.IsList():
		return &Schema{kind: listType, elem: func() *Schema { return ofScalar(fd) }}
	}
	return ofScalar(fd)
}

func ofScalar(fd protoreflect.FieldDescriptor) *Schema {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return OfMessage(fd.Message())
	case protoreflect.EnumKind:
		return ofEnum(fd.Enum())
	case protoreflect.StringKind:
		return &Schema{kind: stringType}
	case protoreflect.BytesKind:
		return &Schema{kind: bytesType}
	case protoreflect.BoolKind:
		return &Schema{kind: boolType}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return &Schema{kind: numberType, lax: true}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return &Schema{kind: intType, bits: 32, lax: true}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return &Schema{kind: intType, bits: 64, lax: true}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return &Schema{kind: uintType, bits: 32, lax: true}
	}
	return &Schema{kind: uintType, bits: 64, lax: true}
}

func ofEnum(d protoreflect.EnumDescriptor) *Schema {
	s := &Schema{kind: enumType}
	for i := range d.Values().Len() {
		s.values = append(s.values, string(d.Values().Get(i).Name()))
	}
	return s
}
