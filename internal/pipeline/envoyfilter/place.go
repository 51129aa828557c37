package envoyfilter

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
)

// place inserts a patch's value into a list, replaces an element by it, or removes elements;
// the list is the caller's own. named tells whether the patch says by which element: without,
// what goes before or after goes to the ends.
func place[M proto.Message](w *work, list []M, p *patch, named bool, matches func(M) bool) []M {
	if p.Operation == model.PatchRemove {
		if slices.ContainsFunc(list, matches) {
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

// position is where a value goes; not ok where the operation places nothing.
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
