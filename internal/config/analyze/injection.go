package analyze

import (
	"maps"
	"slices"
	"strings"

	"istio.io/api/annotation"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// labelInjection is the label of namespaces that switches injection on or off.
const labelInjection = "istio-injection"

// namespace reports labels of injection without the intended effect.
func (c injectionChecks) namespace(n *model.Namespace) {
	value, set := n.Labels[labelInjection]
	field := string(problem.Path("metadata.labels").Key(labelInjection))
	switch {
	case set && value != "enabled" && value != "disabled":
		c.warnf(code.InjectionLabelValue, n, field, "unknown value %q, so no sidecar is injected: use enabled or disabled", value).Set(spelling.Nearest(value, []string{"enabled", "disabled"}))
	case set && n.Labels[model.LabelRevision] != "":
		c.warnf(code.InjectionLabelConflict, n, field, "%s has no effect beside %s; keep one of the two labels", model.LabelRevision, labelInjection)
	}
	for _, name := range []string{labelInjection, model.LabelRevision} {
		if _, wrong := n.Annotations[name]; wrong {
			c.warnf(code.InjectionLabelMisplaced, n, string(problem.Path("metadata.annotations").Key(name)), "has no effect as an annotation; write it as a label")
		}
	}
	if _, wrong := n.Labels[kube.LabelInject]; wrong {
		c.warnf(code.InjectionLabelMisplaced, n, string(problem.Path("metadata.labels").Key(kube.LabelInject)), "has no effect on a namespace; write %s: enabled", labelInjection)
	}
}

// template reports labels and annotations of a template of Pods.
func (c injectionChecks) template(w *model.Workload) {
	c.labelsAt(w, "spec.template.metadata")
}

// labels reports labels and annotations of a Pod.
func (c injectionChecks) labels(w *model.Workload) {
	if w.Kind == model.KindPod {
		c.labelsAt(w, "metadata")
	}
}

func (c injectionChecks) labelsAt(w *model.Workload, at problem.Path) {
	if value, set := w.Labels[kube.LabelInject]; set && value != "true" && value != "false" {
		c.warnf(code.InjectionLabelValue, w, string(at.Field("labels").Key(kube.LabelInject)), "%q is neither \"true\" nor \"false\", so it has no effect; write one of them", value)
	}
	if _, wrong := w.Labels[labelInjection]; wrong {
		c.warnf(code.InjectionLabelMisplaced, w, string(at.Field("labels").Key(labelInjection)), "has no effect on Pods; write %s: \"true\", or set the label on the namespace", kube.LabelInject)
	}
	c.resources(w, at.Field("annotations"))
	known := istioAnnotations()
	for _, name := range slices.Sorted(maps.Keys(w.Annotations)) {
		c.deprecated(w, at, name)
		if !kube.IsInjectionAnnotation(name) || slices.Contains(known, name) {
			continue
		}
		c.warnf(code.UnknownAnnotation, w, string(at.Field("annotations").Key(name)), "is not an annotation of Istio, so it has no effect%s", spelling.DidYouMean(name, known)).Rename(spelling.Nearest(name, known))
	}
}

// deprecated reports annotations that others replace.
func (c injectionChecks) deprecated(w *model.Workload, at problem.Path, name string) {
	field := string(at.Field("annotations").Key(name))
	switch name {
	case annotation.SidecarInject.Name:
		if w.Labels[kube.LabelInject] != "" {
			return
		}
		also := ""
		if w.Annotations[name] == "true" {
			also = ", and adds no sidecar in a namespace without injection"
		}
		c.infof(code.Deprecated, w, field, "is deprecated%s: write it as a label of the Pod", also)
	case annotation.SidecarTrafficKubevirtInterfaces.Name:
		c.infof(code.Deprecated, w, field, "is deprecated: write istio.io/reroute-virtual-interfaces")
	case annotation.SidecarStatsInclusionPrefixes.Name, annotation.SidecarStatsInclusionRegexps.Name, annotation.SidecarStatsInclusionSuffixes.Name:
		c.infof(code.Deprecated, w, field, "is deprecated: write proxyStatsMatcher in the annotation proxy.istio.io/config")
	}
}

// resources reports annotations that take away resources which the sidecar has by default. Kubernetes makes a limit the request,
// too, where none is set.
func (c injectionChecks) resources(w *model.Workload, at problem.Path) {
	if w.Labels[kube.LabelInject] == "false" {
		return
	}
	set, first := map[string]bool{}, ""
	for _, name := range []string{annotation.SidecarProxyCPU.Name, annotation.SidecarProxyMemory.Name, annotation.SidecarProxyCPULimit.Name, annotation.SidecarProxyMemoryLimit.Name} {
		if set[name] = w.Annotations[name] != ""; set[name] && first == "" {
			first = name
		}
	}
	var lost, write []string
	for _, row := range []struct{ what, annotation, or string }{
		{"CPU request", annotation.SidecarProxyCPU.Name, annotation.SidecarProxyCPULimit.Name},
		{"memory request", annotation.SidecarProxyMemory.Name, annotation.SidecarProxyMemoryLimit.Name},
		{"CPU limit", annotation.SidecarProxyCPULimit.Name, ""},
		{"memory limit", annotation.SidecarProxyMemoryLimit.Name, ""},
	} {
		if !set[row.annotation] && !set[row.or] {
			lost, write = append(lost, row.what), append(write, row.annotation)
		}
	}
	if first != "" && len(lost) > 0 {
		c.infof(code.ResourcesReplaced, w, string(at.Key(first)), "replaces all default resources of the sidecar, which then has no %s; to keep them, write %s",
			strings.Join(lost, ", "), strings.Join(write, ", "))
	}
}

func istioAnnotations() []string {
	var out []string
	for _, a := range annotation.AllResourceAnnotations() {
		out = append(out, a.Name)
	}
	return append(out, "sidecar.istio.io/statsHistogramBuckets", "proxy.istio.io/overrides", "sidecar.istio.io/nativeSidecar",
		"prometheus.istio.io/scrape-targets", "prometheus.istio.io/secure-port")
}
