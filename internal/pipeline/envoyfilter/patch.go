// Package envoyfilter applies EnvoyFilters to Envoy's resources: messages in, messages out. It is pure.
//
// Invariants:
//
//  1. A message that is passed in does not change. The result is a patched copy, or the message itself if no patch
//     applies.
//  2. Patches apply in Istio's order: first those of the resource, then those of its parts, from the outside in. Within
//     these the order of the patches is kept.
//  3. The result passes the validation rules of Envoy's API. A patch that breaks them is left out of that resource and
//     reported as a Problem. A resource that Envoy refuses would also delay changes of the mesh itself.
//
// Start reading at New and run (patch.go), then Set.Listener.
package envoyfilter

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Set has the unpacked patches of one proxy group, and records which of them find something to change. Only one goroutine
// may use it. A nil Set has none.
type Set struct {
	by      map[model.PatchTarget][]*patch
	gateway bool
	note    func(model.Key) // see Noting; may be nil
}

// Noting returns a set with the same patches that calls note with the EnvoyFilter of each patch that changes a
// resource.
func (s *Set) Noting(note func(model.Key)) *Set {
	if s == nil {
		return nil
	}
	out := *s
	out.note = note
	return &out
}

// patch is one unpacked patch.
type patch struct {
	ir.Patch
	value   proto.Message // nil for a removal; not to be changed
	matched bool          // it has found something to change
}

// Problem is a patch that could not be applied.
type Problem struct {
	Origin  model.Key
	Index   int // in spec.configPatches
	Message string
}

// Error names the object and the patch in one line.
func (p Problem) Error() string {
	return fmt.Sprintf("%s: spec.configPatches[%d]: %s", p.Origin, p.Index, p.Message)
}

// leftOut ends the message about a patch without an effect.
const leftOut = "; the patch is left out"

func (p *patch) problem(format string, args ...any) Problem {
	return Problem{Origin: p.Origin, Index: p.Index, Message: fmt.Sprintf(format, args...)}
}

// New unpacks patches; nil: there are none.
func New(v *ir.Patches) (*Set, []Problem) {
	if v == nil || len(v.List) == 0 {
		return nil, nil
	}
	s := &Set{by: map[model.PatchTarget][]*patch{}, gateway: v.Gateway}
	var problems []Problem
	for _, from := range v.List {
		p := &patch{Patch: from}
		if from.Value != nil {
			var err error
			if p.value, err = envoyext.Unpack(string(from.Target), from.Value); err != nil {
				problems = append(problems, p.problem("cannot be unpacked: %v"+leftOut, err))
				continue
			}
		}
		s.by[from.Target] = append(s.by[from.Target], p)
	}
	return s, append(problems, s.resolve()...)
}

// any reports whether there are patches of some targets.
func (s *Set) any(targets ...model.PatchTarget) bool {
	return s != nil && slices.ContainsFunc(targets, func(t model.PatchTarget) bool { return len(s.by[t]) > 0 })
}

// work is the patching of one resource.
type work struct {
	*Set
	inline     map[string]ir.RouteConfigKey // of a listener's route configurations, by name
	istioNames map[string]string            // of a listener's chains, by name
	skip       []*patch                     // patches that broke the resource before
	applied    []*patch                     // patches that changed something, each once
	anchors    []proto.Message              // of the chain in progress
	problems   []Problem
}

// of lists the patches of a target, without those in skip.
func (w *work) of(target model.PatchTarget) []*patch {
	if len(w.skip) == 0 {
		return w.by[target]
	}
	return slices.DeleteFunc(slices.Clone(w.by[target]), func(p *patch) bool { return slices.Contains(w.skip, p) })
}

// did records that a patch changed something.
func (w *work) did(p *patch) {
	p.matched = true
	if !slices.Contains(w.applied, p) {
		w.applied = append(w.applied, p)
	}
}

// failed records that a matching patch cannot be applied.
func (w *work) failed(p *patch, format string, args ...any) {
	p.matched = true
	problem := p.problem(format, args...)
	if !slices.Contains(w.problems, problem) {
		w.problems = append(w.problems, problem)
	}
}

// run applies f to a copy of m. It returns the result, or m itself if nothing changed, and whether the resource is still
// present, which f reports. If the result is invalid, it finds the patches that break it and leaves them out.
func run[M proto.Message](s *Set, m M, f func(*work, M) bool, check func(M) error) (out M, present bool, problems []Problem) {
	w := &work{Set: s}
	out, present, err := attempt(w, m, f, check)
	if err != nil {
		w = s.withoutBreaking(w, func(w *work) error { _, _, err := attempt(w, m, f, check); return err })
		if out, present, err = attempt(w, m, f, check); err != nil {
			return m, true, append(w.problems, Problem{Message: err.Error()}) // the resource was invalid before
		}
	}
	if s.note != nil {
		for _, p := range w.applied {
			s.note(p.Origin)
		}
	}
	return out, present, w.problems
}

func attempt[M proto.Message](w *work, m M, f func(*work, M) bool, check func(M) error) (M, bool, error) {
	w.applied = nil
	out := proto.Clone(m).(M)
	if !f(w, out) {
		return m, false, nil
	}
	if len(w.applied) == 0 {
		return m, true, nil
	}
	if err := envoyext.Validate(out); err != nil {
		return m, true, err
	}
	if err := check(out); err != nil {
		return m, true, err
	}
	signed(out, w.applied)
	return out, true, nil
}

// withoutBreaking finds the patches that break the resource. It tries each patch together with the preceding ones that do
// not break it.
func (s *Set) withoutBreaking(w *work, try func(*work) error) *work {
	candidates := w.applied
	out := &work{Set: s, skip: slices.Clone(candidates)}
	var problems []Problem
	for _, p := range candidates {
		i := slices.Index(out.skip, p)
		out.skip = slices.Delete(out.skip, i, i+1)
		if err := try(out); err != nil {
			problems = append(problems, p.problem("Envoy would refuse the result: %v"+leftOut, err))
			out.skip = append(out.skip, p)
		}
	}
	out.problems = problems
	return out
}

// metadataKey is the metadata key with the EnvoyFilters that changed a resource.
const metadataKey = "moonsail"

// signed writes the EnvoyFilters that changed a resource into its metadata, for people who read dumps and to find the
// cause of a NACK.
func signed(m proto.Message, by []*patch) {
	var keys []model.Key
	for _, p := range by {
		keys = append(keys, p.Origin)
	}
	Sign(m, keys...)
}

// Sign writes EnvoyFilters into the metadata of a resource.
func Sign(m proto.Message, by ...model.Key) {
	fd := m.ProtoReflect().Descriptor().Fields().ByName("metadata")
	if fd == nil || fd.Message().FullName() != "envoy.config.core.v3.Metadata" {
		return
	}
	slices.SortFunc(by, model.Key.Compare)
	list := &structpb.ListValue{}
	for _, k := range slices.Compact(by) {
		list.Values = append(list.Values, structpb.NewStringValue(ConfigPath(k)))
	}
	metadata, _ := m.ProtoReflect().Get(fd).Message().Interface().(*corev3.Metadata)
	out := proto.Clone(metadata).(*corev3.Metadata)
	if out == nil {
		out = &corev3.Metadata{}
	}
	if out.FilterMetadata == nil {
		out.FilterMetadata = map[string]*structpb.Struct{}
	}
	out.FilterMetadata[metadataKey] = &structpb.Struct{Fields: map[string]*structpb.Value{"envoy_filters": structpb.NewListValue(list)}}
	m.ProtoReflect().Set(fd, protoreflect.ValueOfMessage(out.ProtoReflect()))
}

// ConfigPath is Istio's name of an EnvoyFilter in metadata.
func ConfigPath(k model.Key) string {
	return fmt.Sprintf("/apis/networking.istio.io/v1alpha3/namespaces/%s/envoy-filter/%s", k.Namespace, k.Name)
}
