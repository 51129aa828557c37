package schema

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/spelling"
)

// hintField says which field was probably meant: one of the same object that is
// spelt alike, or one of the objects inside it that has this very name.
func hintField(name string, s *Schema) string {
	names := s.names()
	if hint := spelling.DidYouMean(name, names); hint != "" {
		return hint
	}
	slices.Sort(names)
	for _, n := range names {
		inner := s.fields[n].schema()
		if inner.kind == listType {
			inner = inner.elem()
		}
		if inner.kind == objectType && inner.fields[name] != nil {
			return fmt.Sprintf("; did you mean %q?", n+"."+inner.fields[name].name)
		}
	}
	return "; known are " + spelling.Sample(names)
}
