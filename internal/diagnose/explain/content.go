package explain

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/moonsail/moonsail/internal/model"
)

// Content is a hash of an object without what its source adds to it. It is equal for a file and for the
// object that an API server made of the file. Annotations count if the mesh reads them, because they are
// decoded into fields.
func Content(o model.Object) string {
	if s, ok := o.(*model.Service); ok {
		o = asWritten(s)
	}
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

// asWritten returns a Kubernetes Service without what an API server fills in: its addresses, and target
// ports that equal the ports.
func asWritten(s *model.Service) *model.Service {
	out := *s
	out.Addresses = nil
	out.Ports = slices.Clone(s.Ports)
	for i := range out.Ports {
		if p := &out.Ports[i]; p.TargetPort == p.Number {
			p.TargetPort = 0
		}
	}
	return &out
}

// InForce reports whether an object of a file is the one that a control plane has, by its Explanation.
// Versions of files are hashes of their whole content.
func InForce(o model.Object, e *Explanation) bool {
	m := o.Metadata()
	if m.ResourceVersion != "" && m.ResourceVersion == e.ResourceVersion {
		return true
	}
	return e.Origin == fromKubernetes && e.Content == Content(o)
}

// fromKubernetes is the origin of objects of an API server.
const fromKubernetes = "kubernetes"

// sourceFields are the fields that depend on where an object comes from: those of model.Meta, and what an EndpointSlice
// records about its source.
var sourceFields = []string{"Annotations", "ResourceVersion", "Created", "Origin", "PodsListed"}

// strip removes the metadata, also from objects inside of objects.
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
