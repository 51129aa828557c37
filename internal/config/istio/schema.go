package istio

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fieldType is what a value in a document may look like.
type fieldType uint8

const (
	formAny fieldType = iota
	formObject
	formList
	formMap
	formString
	formInt
	formUint
	formNumber
	formBool
	formEnum
	formDuration // "1.5s", as proto JSON has it
	formBytes
	formIntOrString
)

// schema describes the values that one type takes in YAML. Shapes are made when they
// are first needed, since some types contain themselves.
type schema struct {
	form   fieldType
	fields map[string]*shapeField // formObject: by every spelling that is accepted
	elem   func() *schema         // formList, formMap
	values []string               // formEnum
	bits   int                    // formInt, formUint
	lax    bool                   // numbers may be quoted, as in proto JSON
	oneofs map[string][]string    // formObject: fields of which one may be set
}

type shapeField struct {
	name  string // as messages spell it
	shape func() *schema
}

// names lists the fields in the spelling of messages.
func (s *schema) names() []string {
	out := make([]string, 0, len(s.fields))
	for k, f := range s.fields {
		if k == f.name {
			out = append(out, k)
		}
	}
	return out
}

// goShapes and protoShapes keep what was made; they only grow, to the size of the APIs.
var goShapes, protoShapes sync.Map

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	protoMessage    = reflect.TypeFor[protoreflect.ProtoMessage]()
	goSpecials      = map[reflect.Type]fieldType{
		reflect.TypeFor[metav1.Time]():        formString,
		reflect.TypeFor[metav1.MicroTime]():   formString,
		reflect.TypeFor[intstr.IntOrString](): formIntOrString,
	}
)

// goShape describes a Go type by its JSON tags, as Kubernetes' types have them.
func goShape(t reflect.Type) *schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := goShapes.Load(t); ok {
		return s.(*schema)
	}
	s, _ := goShapes.LoadOrStore(t, newGoShape(t))
	return s.(*schema)
}

func newGoShape(t reflect.Type) *schema {
	if f, ok := goSpecials[t]; ok {
		return &schema{form: f}
	}
	if p := reflect.PointerTo(t); p.Implements(protoMessage) {
		return protoShape(reflect.New(t).Interface().(protoreflect.ProtoMessage).ProtoReflect().Descriptor())
	} else if p.Implements(jsonUnmarshaler) {
		return &schema{form: formAny}
	}
	elem := func() *schema { return goShape(t.Elem()) }
	switch t.Kind() {
	case reflect.Struct:
		s := &schema{form: formObject, fields: map[string]*shapeField{}}
		addGoFields(s, t)
		return s
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return &schema{form: formBytes}
		}
		return &schema{form: formList, elem: elem}
	case reflect.Map:
		return &schema{form: formMap, elem: elem}
	case reflect.String:
		return &schema{form: formString}
	case reflect.Bool:
		return &schema{form: formBool}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &schema{form: formInt, bits: t.Bits()}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &schema{form: formUint, bits: t.Bits()}
	case reflect.Float32, reflect.Float64:
		return &schema{form: formNumber}
	}
	return &schema{form: formAny}
}

func addGoFields(s *schema, t reflect.Type) {
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
			s.fields[name] = &shapeField{name: name, shape: func() *schema { return goShape(f.Type) }}
		}
	}
}

// protoShape describes a message by its descriptor, in proto JSON.
func protoShape(d protoreflect.MessageDescriptor) *schema {
	if s, ok := protoShapes.Load(d.FullName()); ok {
		return s.(*schema)
	}
	s, _ := protoShapes.LoadOrStore(d.FullName(), newProtoShape(d))
	return s.(*schema)
}

func newProtoShape(d protoreflect.MessageDescriptor) *schema {
	switch d.FullName() {
	case "google.protobuf.Duration":
		return &schema{form: formDuration}
	case "google.protobuf.Timestamp":
		return &schema{form: formString}
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.Any":
		return &schema{form: formAny}
	}
	if d.FullName().Parent() == "google.protobuf" && strings.HasSuffix(string(d.Name()), "Value") {
		return protoScalar(d.Fields().ByName("value"))
	}
	s := &schema{form: formObject, fields: map[string]*shapeField{}, oneofs: map[string][]string{}}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &shapeField{name: fd.JSONName(), shape: func() *schema { return protoField(fd) }}
		s.fields[fd.JSONName()] = f
		s.fields[string(fd.Name())] = f
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			s.oneofs[string(o.Name())] = append(s.oneofs[string(o.Name())], fd.JSONName())
		}
	}
	return s
}

func protoField(fd protoreflect.FieldDescriptor) *schema {
	switch {
	case fd.IsMap():
		return &schema{form: formMap, elem: func() *schema { return protoScalar(fd.MapValue()) }}
	case fd.IsList():
		return &schema{form: formList, elem: func() *schema { return protoScalar(fd) }}
	}
	return protoScalar(fd)
}

func protoScalar(fd protoreflect.FieldDescriptor) *schema {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return protoShape(fd.Message())
	case protoreflect.EnumKind:
		return enumShape(fd.Enum())
	case protoreflect.StringKind:
		return &schema{form: formString}
	case protoreflect.BytesKind:
		return &schema{form: formBytes}
	case protoreflect.BoolKind:
		return &schema{form: formBool}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return &schema{form: formNumber, lax: true}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return &schema{form: formInt, bits: 32, lax: true}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return &schema{form: formInt, bits: 64, lax: true}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return &schema{form: formUint, bits: 32, lax: true}
	}
	return &schema{form: formUint, bits: 64, lax: true}
}

func enumShape(d protoreflect.EnumDescriptor) *schema {
	s := &schema{form: formEnum}
	for i := range d.Values().Len() {
		s.values = append(s.values, string(d.Values().Get(i).Name()))
	}
	return s
}
