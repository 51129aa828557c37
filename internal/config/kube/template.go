package kube

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"istio.io/api/annotation"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// TemplateOf returns the fields that lead to the template of Pods in objects of a kind; nil: it has none.
func TemplateOf(group, kind string) []string {
	switch group + "/" + kind {
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "batch/Job", "argoproj.io/Rollout":
		return []string{"spec", "template"}
	case "batch/CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return nil
}

// Template returns the workload that the template at a field of an object makes, and the template; nil: it cannot be read. Only analysis
// uses it: a running mesh has the Pods. The workload has the label of a sidecar, unless its labels or annotations
// switch injection off.
func Template(owner model.Key, object map[string]any, at []string) (*model.Workload, *corev1.PodTemplateSpec) {
	part := object
	for _, field := range at {
		part, _ = part[field].(map[string]any)
	}
	text, err := json.Marshal(part)
	var template corev1.PodTemplateSpec
	if part == nil || err != nil || json.Unmarshal(text, &template) != nil {
		return nil, nil
	}
	w := &model.Workload{
		Meta:           model.Meta{Key: owner, Labels: map[string]string{}, Annotations: template.Annotations},
		Owner:          owner.Name,
		ServiceAccount: template.Spec.ServiceAccountName,
		NamedPorts:     namedPorts(&template.Spec),
		Interception:   model.Interception(template.Annotations[model.AnnotationInterception]),
		HostNetwork:    template.Spec.HostNetwork,
		Ready:          true,
	}
	if w.ServiceAccount == "" {
		w.ServiceAccount = "default"
	}
	for k, v := range template.Labels {
		w.Labels[k] = v
	}
	if !DeclinesSidecar(template.Labels, template.Annotations) && !w.HostNetwork {
		w.Labels[model.LabelTLSMode] = model.TLSModeLabelIstio
	}
	return w, &template
}

// DeclinesSidecar reports whether a Pod's label, or else its annotation, switches injection off.
func DeclinesSidecar(labels, annotations map[string]string) bool {
	value, set := labels[LabelInject]
	if !set {
		value = annotations[LabelInject]
	}
	return value == "false"
}

// CheckTemplate reports what is wrong with the template of Pods at a field of an object, and annotations of sidecars that are not
// in it. n is the document of the object.
func CheckTemplate(r *problem.Report, n *yaml.Node, object map[string]any, at []string) {
	path, part := problem.Path(""), object
	for _, field := range at {
		part, _ = part[field].(map[string]any)
		path = path.Field(field)
	}
	meta, _ := part["metadata"].(map[string]any)
	for _, texts := range []problem.Path{path.Field("metadata").Field("labels"), path.Field("metadata").Field("annotations"), matchLabels} {
		schema.CheckTexts(r, texts, n)
	}
	checkMisplaced(r, object, path)
	checkSelector(r, object, path, meta)
	spec, _ := part["spec"].(map[string]any)
	if !isIntercepted(meta) {
		return
	}
	checkUser(r, path.Field("spec"), spec)
	containers, _ := spec["containers"].([]any)
	for i, c := range containers {
		if container, _ := c.(map[string]any); container["name"] != "istio-proxy" {
			checkUser(r, path.Field("spec").Field("containers").Index(i), container)
		}
	}
}

// checkMisplaced reports labels and annotations of injection at the owner of Pods: only those of the Pods have an effect.
func checkMisplaced(r *problem.Report, object map[string]any, template problem.Path) {
	meta, _ := object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if IsInjectionAnnotation(name) {
			r.Warnf(code.MisplacedAnnotation, problem.Path("metadata.annotations").Key(name), "has no effect here: it is for Pods; move it to %s.metadata.annotations", template)
		}
	}
	labels, _ := meta["labels"].(map[string]any)
	if _, wrong := labels[LabelInject]; wrong {
		r.Warnf(code.InjectionLabelMisplaced, problem.Path("metadata.labels").Key(LabelInject), "has no effect here: it is for Pods; move it to %s.metadata.labels", template)
	}
}

// matchLabels is where owners of Pods have the labels that they select Pods by.
const matchLabels problem.Path = "spec.selector.matchLabels"

// checkSelector reports a selector that the template does not match. CheckTemplate reports values that are not text.
func checkSelector(r *problem.Report, object map[string]any, template problem.Path, meta map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	wanted, _ := selector["matchLabels"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if !reflect.DeepEqual(labels[k], wanted[k]) {
			r.Errorf(code.SelectorMatchesNothing, matchLabels.Key(k), "the labels of %s do not have %s=%v, so Kubernetes refuses the object; make the two alike", template, k, wanted[k])
		}
	}
}

// sidecarUser is the user whose connections are not intercepted, since they are the sidecar's.
const sidecarUser = 1337

// isIntercepted reports whether Pods with these metadata may get a sidecar. Pods of gateways get none beside their own Envoy.
func isIntercepted(meta map[string]any) bool {
	labels, _ := meta["labels"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	templates, _ := annotations[annotation.InjectTemplates.Name].(string)
	return labels[LabelInject] != "false" && annotations[LabelInject] != "false" && !slices.Contains(strings.Split(templates, ","), "gateway")
}

func checkUser(r *problem.Report, at problem.Path, value map[string]any) {
	context, _ := value["securityContext"].(map[string]any)
	if user, _ := context["runAsUser"].(int); user == sidecarUser {
		r.Warnf(code.SidecarUser, at.Field("securityContext").Field("runAsUser"), "is the user of sidecars, whose connections bypass the mesh; choose another one")
	}
}

// IsInjectionAnnotation reports whether an annotation is in a domain of which all are for Pods with sidecars, and known.
func IsInjectionAnnotation(name string) bool {
	return slices.ContainsFunc([]string{"sidecar.istio.io/", "proxy.istio.io/", "inject.istio.io/", "traffic.sidecar.istio.io/", "prometheus.istio.io/"}, func(domain string) bool {
		return len(name) > len(domain) && strings.HasPrefix(name, domain)
	})
}

// LabelInject is the label, and in older objects the annotation, that switches injection of a Pod on or off.
const LabelInject = "sidecar.istio.io/inject"
