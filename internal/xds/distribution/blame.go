package distribution

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// Blame is what a refused resource is refused for.
type Blame struct {
	// Objects are the likeliest first. There are none if only the mesh's configuration is meant.
	Objects []Blamed `json:"objects,omitempty"`
	// Sure is set if all Objects are to blame. Otherwise one of them is.
	Sure bool `json:"sure,omitempty"`
	Mesh bool `json:"mesh,omitempty"` // the mesh's configuration may be to blame as well
}

// Blamed is an object that a resource is refused for, or may be.
type Blamed struct {
	Object model.Key `json:"object"`
	Origin string    `json:"origin,omitempty"` // file and line, or the API server
}

// Has reports whether an object is to blame, or may be.
func (b *Blame) Has(k model.Key) bool {
	return slices.ContainsFunc(b.Objects, func(o Blamed) bool { return o.Object == k })
}

// originKubernetes is the origin of objects of an API server.
const originKubernetes = "kubernetes"

// String returns "EnvoyFilter shop/add-region, policies/headers.yaml:1".
func (o *Blamed) String() string {
	text := strings.Replace(o.Object.String(), "/", " ", 1)
	if o.Origin != "" && o.Origin != originKubernetes {
		text += ", " + o.Origin
	}
	return text
}

// mostBlamed bounds the objects that a text names.
const mostBlamed = 3

// String returns "by EnvoyFilter shop/add-region, policies/headers.yaml:1", or "by one of ..."; empty: unknown.
func (b *Blame) String() string {
	const mesh = "the mesh's configuration"
	var names []string
	for i := range b.Objects[:min(len(b.Objects), mostBlamed)] {
		names = append(names, b.Objects[i].String())
	}
	if more := len(b.Objects) - mostBlamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	switch {
	case len(names) == 0 && b.Mesh:
		return "by " + mesh
	case len(names) == 0:
		return ""
	case b.Sure:
		return "by " + strings.Join(names, "; ")
	}
	if b.Mesh {
		names = append(names, mesh)
	}
	if len(names) == 1 {
		return "probably by " + names[0]
	}
	return "by one of: " + strings.Join(names, "; ")
}
