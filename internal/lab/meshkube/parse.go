package meshkube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parse reads a file's documents.
func parse(content string) (list []*object, parsed []*unstructured.Unstructured, err error) {
	for _, doc := range strings.Split(content, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return nil, nil, err
		}
		if u.GetKind() == "" || u.GetName() == "" || u.GetNamespace() == "" {
			return nil, nil, fmt.Errorf("document %.60q: needs kind, name and namespace", doc)
		}
		forServer(u)
		parsed = append(parsed, u)
		list = append(list, &object{
			resource: resourceOf(u.GroupVersionKind()), namespace: u.GetNamespace(), name: u.GetName(), content: doc,
		})
	}
	return list, parsed, nil
}

// forServer removes fields that the API server sets: cluster addresses must be in its range. It marks endpoints as managed by
// the lab, so that no controller changes them.
func forServer(u *unstructured.Unstructured) {
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	switch u.GetKind() {
	case "Service":
		unstructured.RemoveNestedField(u.Object, "spec", "clusterIP")
	case "EndpointSlice":
		labels := u.GetLabels()
		labels["endpointslice.kubernetes.io/managed-by"] = "moonsail-lab"
		u.SetLabels(labels)
	}
}
