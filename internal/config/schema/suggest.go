package schema

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/spelling"
)

// hintField returns the field that was probably meant: a field of the same object with a similar name, or a field of this
// name in an object inside it.
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
