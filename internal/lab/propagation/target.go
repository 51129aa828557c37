package propagation

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// leftOut describes the meshes and scenarios that a run with --target does not measure, or returns "".
func (o *Options) leftOut(chosen []Scenario) string {
	if o.External == "" {
		return ""
	}
	var out []string
	for _, m := range o.Meshes {
		if !slices.Contains(o.measured(), m) {
			out = append(out, "mesh "+results.MeshName(m)+" (--target reads one directory: run again for this mesh)")
		}
	}
	for _, s := range chosen {
		if o.unsupported(&s) != nil {
			out = append(out, s.Name)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "left out with --target: " + strings.Join(out, ", ")
}

// measured returns the meshes to measure. With a directory for one mesh only, it is the middle one, on which the
// scenarios storm and stalled run: a smaller mesh may not fill the socket of the stalled proxy.
func (o *Options) measured() []meshfiles.Shape {
	if middle := len(o.Meshes) / 2; o.External != "" && o.Source != session.SourceKube {
		return o.Meshes[middle : middle+1]
	}
	return o.Meshes
}
