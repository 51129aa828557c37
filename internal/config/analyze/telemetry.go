package analyze

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// telemetry reports providers that the mesh does not have, or that are for something else: what is said of them
// has no effect, and those of the mesh's defaults are not asked instead. It also reports a Telemetry beside an older one.
func (c telemetryChecks) telemetry(t *model.Telemetry) {
	c.wholeNamespace(t)
	for i := range t.Metrics {
		c.providers(t, fmt.Sprintf("spec.metrics[%d]", i), t.Metrics[i].Providers, "metrics", func(k model.ProviderKind) bool {
			return k == model.ProviderPrometheus
		})
	}
	for i := range t.Logging {
		c.providers(t, fmt.Sprintf("spec.accessLogging[%d]", i), t.Logging[i].Providers, "access logs", model.ProviderKind.IsLog)
	}
	for i := range t.Tracing {
		if name := t.Tracing[i].Provider; name != "" {
			c.providers(t, fmt.Sprintf("spec.tracing[%d]", i), []string{name}, "traces", model.ProviderKind.IsTracing)
		}
	}
}

// wholeNamespace reports a Telemetry for a whole namespace that has an older one. Of those for some workloads all count.
func (c telemetryChecks) wholeNamespace(t *model.Telemetry) {
	whole := func(o *model.Telemetry) bool { return len(o.Selector) == 0 && !o.Targeted }
	for _, o := range c.telemetries {
		if whole(t) && whole(o) && o.Namespace == t.Namespace && model.Older(o, t) {
			c.warnf(code.TargetTwice, t, "spec", "%s is for all of namespace %s, too, and is older, so this one has no effect; merge the two", o.Name, t.Namespace)
			return
		}
	}
}

func (c telemetryChecks) providers(t *model.Telemetry, field string, names []string, what string, fits func(model.ProviderKind) bool) {
	mesh := c.meshTelemetry()
	for i, name := range names {
		at := fmt.Sprintf("%s.providers[%d].name", field, i)
		switch p := mesh.Provider(name); {
		case p == nil && c.security.mesh == nil:
			c.infof(code.ProviderNotFound, t, at, "%s, so nothing is done for the provider unless %q is one of its extensionProviders", securityChecks(c).noMesh(), name)
		case p == nil:
			c.warnf(code.ProviderNotFound, t, at, "the mesh has no provider %q, so nothing is done for it; add it to extensionProviders%s", name, named(mesh, what, fits))
		case !fits(p.Kind):
			c.warnf(code.ProviderNotFound, t, at, "the provider %q (%s) is not for %s, so nothing is done for it%s", name, p.Kind, what, named(mesh, what, fits))
		}
	}
}

func (c telemetryChecks) meshTelemetry() *model.MeshTelemetry {
	if m := c.security.mesh; m != nil && m.Telemetry != nil {
		return m.Telemetry
	}
	t := model.DefaultMeshTelemetry()
	return &t
}

// named lists the providers that would do.
func named(mesh *model.MeshTelemetry, what string, fits func(model.ProviderKind) bool) string {
	var names []string
	for i := range mesh.Providers {
		if fits(mesh.Providers[i].Kind) {
			names = append(names, mesh.Providers[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("; for %s there is %s", what, strings.Join(names, ", "))
}
