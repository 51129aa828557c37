package envoyfilter

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// merge lays src over dst as Istio does: fields that src has replace dst's, messages are
// merged field by field, lists are appended or, with replaceLists, replaced. What stands for
// one value, a duration or a number that may be absent, is replaced as a whole: else 0
// could not be written.
func merge(dst, src protoreflect.Message, replaceLists bool) {
	src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList():
			mergeList(dst.Mutable(fd).List(), v.List(), replaceLists)
		case fd.IsMap():
			to := dst.Mutable(fd).Map()
			v.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
				to.Set(k, copied(e))
				return true
			})
		case fd.Message() != nil && !isValue(fd.Message().FullName()):
			merge(dst.Mutable(fd).Message(), v.Message(), replaceLists)
		default:
			dst.Set(fd, copied(v))
		}
		return true
	})
}

func mergeList(dst, src protoreflect.List, replace bool) {
	if replace {
		dst.Truncate(0)
	}
	for i := range src.Len() {
		dst.Append(copied(src.Get(i)))
	}
}

// copied is a value that shares nothing with v.
func copied(v protoreflect.Value) protoreflect.Value {
	switch m := v.Interface().(type) {
	case protoreflect.Message:
		return protoreflect.ValueOfMessage(proto.Clone(m.Interface()).ProtoReflect())
	case []byte:
		return protoreflect.ValueOfBytes(append([]byte{}, m...))
	}
	return v
}

// isValue tells messages that stand for one value.
func isValue(name protoreflect.FullName) bool {
	switch name {
	case "google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.Any", "google.protobuf.Value":
		return true
	}
	return name.Parent() == "google.protobuf" && strings.HasSuffix(string(name), "Value") && name != "google.protobuf.ListValue"
}

// mergeMessages merges two messages of one type.
func mergeMessages(dst, src proto.Message, replaceLists bool) {
	merge(dst.ProtoReflect(), src.ProtoReflect(), replaceLists)
}

// mergePacked merges packed messages of one type into a new one.
func mergePacked(dst, src *anypb.Any, replaceLists bool) (*anypb.Any, error) {
	if dst.GetTypeUrl() != src.GetTypeUrl() {
		return nil, fmt.Errorf("what is there is a %s, and cannot be merged with a %s", dst.GetTypeUrl(), src.GetTypeUrl())
	}
	to, err := dst.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	from, err := src.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	mergeMessages(to, from, replaceLists)
	return packed(to)
}

// packed packs a message; equal messages give equal bytes.
func packed(m proto.Message) (*anypb.Any, error) {
	out := &anypb.Any{}
	return out, anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true})
}
