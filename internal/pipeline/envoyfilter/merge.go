package envoyfilter

import (
	"fmt"
	"slices"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// merge merges src into dst as Istio does: the fields of src replace those of dst, messages are merged field by field,
// and lists are appended or, with replaceLists, replaced. A message that stands for one value, such as a duration or an
// optional number, is replaced as a whole. Otherwise a patch could not set it to 0.
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

// copied returns a deep copy of v.
func copied(v protoreflect.Value) protoreflect.Value {
	switch m := v.Interface().(type) {
	case protoreflect.Message:
		return protoreflect.ValueOfMessage(proto.Clone(m.Interface()).ProtoReflect())
	case []byte:
		return protoreflect.ValueOfBytes(append([]byte{}, m...))
	}
	return v
}

// isValue reports whether a message stands for one value.
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
		return nil, fmt.Errorf("cannot merge a %s into a %s", src.GetTypeUrl(), dst.GetTypeUrl())
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

// packed packs a message deterministically.
func packed(m proto.Message) (*anypb.Any, error) {
	out := &anypb.Any{}
	return out, anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true})
}

// place inserts the value of a patch into a list, replaces an element by it, or removes elements. It may change list.
// named: the patch names an element. Otherwise INSERT_BEFORE and INSERT_AFTER insert at the ends.
func place[M proto.Message](w *work, list []M, p *patch, named bool, matches func(M) bool) []M {
	if p.Operation == model.PatchRemove {
		if slices.ContainsFunc(list, func(m M) bool { return matches(m) && !w.isAnchor(m) }) {
			w.did(p)
		}
		return slices.DeleteFunc(list, matches)
	}
	i, ok := position(list, p.Operation, named, matches)
	if !ok {
		return list
	}
	w.did(p)
	value := proto.Clone(p.value).(M)
	if p.Operation == model.PatchReplace {
		list[i] = value
		return list
	}
	return slices.Insert(list, i, value)
}

// position returns the index at which a value is placed; not ok: the operation places nothing.
func position[M any](list []M, op model.PatchOperation, named bool, matches func(M) bool) (int, bool) {
	at := slices.IndexFunc(list, matches)
	switch op {
	case model.PatchAdd:
		return len(list), true
	case model.PatchFirst:
		return 0, true
	case model.PatchBefore:
		if !named {
			return 0, true
		}
		return at, at >= 0
	case model.PatchAfter:
		if !named {
			return len(list), true
		}
		return at + 1, at >= 0
	case model.PatchReplace:
		return at, at >= 0
	}
	return 0, false
}

// Bootstrap combines the patches of an EnvoyFilter for the bootstrap into one message. The agent merges it into its
// bootstrap. Merging is associative, so the result is the same as merging each patch there.
func Bootstrap(v *ir.Bootstrap) (*bootstrapv3.Bootstrap, error) {
	out := &bootstrapv3.Bootstrap{}
	for _, p := range v.Patches {
		value := &bootstrapv3.Bootstrap{}
		if err := proto.Unmarshal(p.Value, value); err != nil {
			return nil, fmt.Errorf("spec.configPatches[%d]: cannot be unpacked: %w", p.Index, err)
		}
		MergeBootstrap(out, value)
	}
	return out, nil
}

// MergeBootstrap merges a change into a bootstrap. As with every MERGE, lists are appended.
func MergeBootstrap(into, change *bootstrapv3.Bootstrap) { mergeMessages(into, change, false) }
