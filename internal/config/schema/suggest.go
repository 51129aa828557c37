package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	var meant []string
	for _, n := range names {
		inner := s.fields[n].schema()
		if inner.kind == listType {
			inner = inner.elem()
		}
		if inner.kind == objectType && inner.fields[name] != nil {
			meant = append(meant, strconv.Quote(n+"."+inner.fields[name].name))
		}
	}
	if len(meant) > 0 && len(meant) < 4 {
		return fmt.Sprintf("; did you mean %s?", strings.Join(meant, " or "))
	}
	return "; known are " + spelling.Sample(names)
}
