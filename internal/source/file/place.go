package file

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// Place returns the file and line of a field of an object in force, or of the nearest part of it that the file has. It reads
// the file again; "" if that does not have this version of the object any more.
func (s *Source) Place(m *model.Meta, field string) string {
	path, line := splitOrigin(m.Origin)
	if line == 0 {
		return ""
	}
	data, _, err := read(path)
	if err != nil {
		return ""
	}
	p := parse(path, data, s.Decoder)
	for i := range p.docs {
		o := p.docs[i].usable()
		if o == nil {
			continue
		}
		if found := o.Metadata(); found.Key == m.Key && found.ResourceVersion == m.ResourceVersion && found.Origin == m.Origin {
			return fmt.Sprintf("%s:%d", path, schema.LineOf(p.docs[i].node, field))
		}
	}
	return ""
}
