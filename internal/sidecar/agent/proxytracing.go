package agent

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moonsail/moonsail/internal/model"
)

// tellTracing warns of what the Pod's annotation says of traces in vain.
func (s *settings) tellTracing() {
	t := s.ownTracing
	if t == nil {
		return
	}
	var out []string
	t.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(model.TracingFields, f.JSONName()) {
			out = append(out, "tracing."+f.JSONName())
		}
		return true
	})
	if slices.Sort(out); len(out) > 0 {
		s.log.Warn("where spans go is for the mesh's configuration and Telemetries to say, not for the annotation of a Pod",
			"annotation", ProxyConfigAnnotation, "fields", strings.Join(out, ", "))
	}
	if t.Sampling < 0 || t.Sampling > 100 {
		s.log.Warn("annotation of the Pod: sampling is ignored: use a percentage from 0 to 100",
			"annotation", ProxyConfigAnnotation, "sampling", t.Sampling)
	}
}
