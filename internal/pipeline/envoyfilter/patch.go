// Package envoyfilter applies EnvoyFilters to Envoy's resources: messages in, messages out. It is
// pure, and changes no message that it is given.
//
// It follows Istio's order: for each resource the patches of the object itself, then of what
// is in it, from the outside in; in each of these the order of the patches. What a patch
// makes is held against the rules of Envoy's API, and a patch that breaks them is left out
// for that resource, with a problem: a resource that Envoy refuses would hold up what the
// mesh itself has to say.
package envoyfilter

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Set is the patches of one scope, unpacked. It does not change. nil has none.
type Set struct {
	by      map[model.PatchTarget][]*patch
	gateway bool
	note    func(model.Key) // see Noting; nil: nobody asks
}

// Noting is a set with the same patches that calls note with the EnvoyFilter of each patch that
// changes a resource. A set that notes is for one goroutine.
func (s *Set) Noting(note func(model.Key)) *Set {
	if s == nil {
		return nil
	}
	out := *s
	out.note = note
	return &out
}

// patch is one of them.
type patch struct {
	ir.Patch
	value proto.Message // nil for a removal; not to be changed
}

// Problem is what a patch could not do.
type Problem struct {
	Origin  model.Key
	Index   int // in spec.configPatches
	Message string
}

// Error is one line with the object and the patch.
func (p Problem) Error() string {
	return fmt.Sprintf("%s: spec.configPatches[%d]: %s", p.Origin, p.Index, p.Message)
}

// leftOut ends a problem with a patch that changes nothing.
const leftOut = "; the patch is left out"

func (p *patch) problem(format string, args ...any) Problem {
	return Problem{Origin: p.Origin, Index: p.Index, Message: fmt.Sprintf(format, args...)}
}

// New unpacks patches; nil where there are none.
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

// any tells whether there are patches of some targets.
func (s *Set) any(targets ...model.PatchTarget) bool {
	return s != nil && slices.ContainsFunc(targets, func(t model.PatchTarget) bool { return len(s.by[t]) > 0 })
}

// work is the patching of one resource.
type work struct {
	*Set
	inline   map[string]ir.RouteConfigKey // of a listener's route configurations, by name
	skip     []*patch                     // that broke it before
	applied  []*patch                     // that changed something, each once
	problems []Problem
}

// of lists the patches of a target that are not to be skipped.
func (w *work) of(target model.PatchTarget) []*patch {
	if len(w.skip) == 0 {
		return w.by[target]
	}
	return slices.DeleteFunc(slices.Clone(w.by[target]), func(p *patch) bool { return slices.Contains(w.skip, p) })
}

// did notes that a patch changed something.
func (w *work) did(p *patch) {
	if !slices.Contains(w.applied, p) {
		w.applied = append(w.applied, p)
	}
}

// failed notes that a patch cannot be applied where it matches.
func (w *work) failed(p *patch, format string, args ...any) {
	problem := p.problem(format, args...)
	if !slices.Contains(w.problems, problem) {
		w.problems = append(w.problems, problem)
	}
}

// run applies f to a copy of m: the result, or m itself where nothing changed, and whether
// it is still there. f tells the latter.
func run[M proto.Message](s *Set, m M, f func(*work, M) bool, check func(M) error) (out M, there bool, problems []Problem) {
	w := &work{Set: s}
	out, there, err := attempt(w, m, f, check)
	if err != nil {
		w = s.withoutBreaking(w, func(w *work) error { _, _, err := attempt(w, m, f, check); return err })
		if out, there, err = attempt(w, m, f, check); err != nil {
			return m, true, append(w.problems, Problem{Message: err.Error()}) // the resource was broken before
		}
	}
	if s.note != nil {
		for _, p := range w.applied {
			s.note(p.Origin)
		}
	}
	return out, there, w.problems
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

// withoutBreaking finds which of the patches that w applied break the resource: each is
// tried beside those before it that do not.
func (s *Set) withoutBreaking(w *work, try func(*work) error) *work {
	candidates := w.applied
	out := &work{Set: s, skip: slices.Clone(candidates)}
	var problems []Problem
	for _, p := range candidates {
		i := slices.Index(out.skip, p)
		out.skip = slices.Delete(out.skip, i, i+1)
		if err := try(out); err != nil {
			problems = append(problems, p.problem("what comes of it is nothing that Envoy takes: %v"+leftOut, err))
			out.skip = append(out.skip, p)
		}
	}
	out.problems = problems
	return out
}
