package explain

import (
	"encoding/json"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/moonsail/moonsail/internal/model"
)

// Content is a hash of what an object says, without what its source adds to it: equal for
// a file and for what an API server made of that file. Annotations count as far as the mesh
// reads them, when they are decoded into fields.
func Content(o model.Object) string {
	b, err := json.Marshal(o)
	var fields any
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		return ""
	}
	strip(fields)
	if b, err = json.Marshal(fields); err != nil {
		return ""
	}
	return strconv.FormatUint(xxhash.Sum64(b), 16)
}

// sourceFields are the fields of model.Meta that depend on where an object comes from.
var sourceFields = []string{"Annotations", "ResourceVersion", "Created", "Origin"}

// strip takes out the metadata, also that of objects inside of objects.
func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, meta := v["ResourceVersion"]; meta {
			for _, f := range sourceFields {
				delete(v, f)
			}
		}
		for _, inner := range v {
			strip(inner)
		}
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	}
}
