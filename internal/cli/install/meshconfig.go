package install

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
)

// controlPlaneSelector selects Deployments of control planes, Moonsail's and Istio's.
const controlPlaneSelector = "app=istiod"

// isMeshConfig reports whether an object is a ConfigMap with MeshConfig.
func isMeshConfig(o *unstructured.Unstructured) bool {
	_, ok, _ := unstructured.NestedString(o.Object, "data", "mesh")
	return ok && o.GetKind() == configMaps.name
}

// withoutReadMeshConfig keeps each ConfigMap whose MeshConfig a control plane still reads: it drops them from the objects to
// remove, and calls note for each. Without MeshConfig the control plane would use the defaults.
func (o *operation) withoutReadMeshConfig(ctx context.Context, list []*unstructured.Unstructured, note func(string)) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, one := range list {
		var readers []string
		if isMeshConfig(one) {
			var err error
			if readers, err = o.readersOf(ctx, one, list); err != nil {
				return nil, err
			}
		}
		if len(readers) == 0 {
			out = append(out, one)
			continue
		}
		note(titleOf(one) + " remains: control planes read their MeshConfig there: " + strings.Join(readers, ", "))
	}
	return out, nil
}

// readersOf names the control planes that read a ConfigMap with MeshConfig: neither those that are removed, too, nor that of
// this revision, whose values decide about it.
func (o *operation) readersOf(ctx context.Context, config *unstructured.Unstructured, removed []*unstructured.Unstructured) ([]string, error) {
	list, err := o.cluster.List(ctx, deployments.GroupVersionResource, config.GetNamespace(), controlPlaneSelector)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list {
		d := &list[i]
		d.SetGroupVersionKind(deployments.GroupVersion().WithKind(deployments.name))
		gone := slices.ContainsFunc(removed, func(r *unstructured.Unstructured) bool { return titleOf(r) == titleOf(d) })
		if !gone && d.GetLabels()[labelRevision] != o.Revision && meshConfigOf(d) == config.GetName() {
			out = append(out, titleOf(d))
		}
	}
	return out, nil
}

// meshConfigOf returns the name of the ConfigMap from which a control plane reads MeshConfig. A revision of Istio has its own.
func meshConfigOf(d *unstructured.Unstructured) string {
	const standard, flag = "istio", "--mesh-config-map="
	if labels := d.GetLabels(); labels[labelName] != ourName && labels[model.LabelRevision] != "" {
		return deploy.Named(standard, labels[model.LabelRevision])
	}
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		m, _ := c.(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(m, "args")
		for _, a := range args {
			if name, ok := strings.CutPrefix(a, flag); ok {
				return name
			}
		}
	}
	return standard
}
