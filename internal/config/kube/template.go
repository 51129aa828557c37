package kube

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

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

// Template returns the workload that the template at a field of an object makes; nil: it cannot be read. Only analysis
// uses it: a running mesh has the Pods. The workload has the label of a sidecar, unless its labels or annotations
// switch injection off.
func Template(owner model.Key, object map[string]any, at []string) *model.Workload {
	part := object
	for _, field := range at {
		part, _ = part[field].(map[string]any)
	}
	text, err := json.Marshal(part)
	var template corev1.PodTemplateSpec
	if part == nil || err != nil || json.Unmarshal(text, &template) != nil {
		return nil
	}
	w := &model.Workload{
		Meta:           model.Meta{Key: owner, Labels: map[string]string{}, Annotations: template.Annotations},
		Owner:          owner.Name,
		ServiceAccount: template.Spec.ServiceAccountName,
		NamedPorts:     map[string]uint32{},
		HostNetwork:    template.Spec.HostNetwork,
		Ready:          true,
	}
	if w.ServiceAccount == "" {
		w.ServiceAccount = "default"
	}
	for k, v := range template.Labels {
		w.Labels[k] = v
	}
	if template.Labels[LabelInject] != "false" && template.Annotations[LabelInject] != "false" && !w.HostNetwork {
		w.Labels[model.LabelTLSMode] = model.TLSModeLabelIstio
	}
	for i := range template.Spec.Containers {
		for _, p := range template.Spec.Containers[i].Ports {
			if p.Name != "" {
				w.NamedPorts[p.Name] = uint32(max(p.ContainerPort, 0))
			}
		}
	}
	return w
}

// LabelInject is the label, and in older objects the annotation, that switches injection of a Pod on or off.
const LabelInject = "sidecar.istio.io/inject"
