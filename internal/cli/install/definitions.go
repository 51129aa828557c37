package install

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
)

// definitionsToApply returns the resource definitions of the chart base that are new or ours. Those of another
// installation stay as they are: it may need a later version.
func definitionsToApply(ctx context.Context, c objects, list []*unstructured.Unstructured) (apply []*unstructured.Unstructured, others []change, err error) {
	have, err := definitionsByName(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	apply = []*unstructured.Unstructured{}
	for _, o := range list {
		other := have[o.GetName()]
		if o.GetKind() != definitions.name || other == nil || other.GetLabels()[labelChart] == deploy.BaseChart {
			apply = append(apply, o)
			continue
		}
		others = append(others, change{Action: kept, Object: titleOf(o), object: o})
	}
	return apply, others, nil
}

// definitionsByName reads the cluster's resource definitions.
func definitionsByName(ctx context.Context, c objects) (map[string]*unstructured.Unstructured, error) {
	live, err := c.List(ctx, definitions.GroupVersionResource, "", "")
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", definitions.Resource, err)
	}
	out := map[string]*unstructured.Unstructured{}
	for i := range live {
		out[live[i].GetName()] = &live[i]
	}
	return out, nil
}

// awaitEstablished waits until the API server serves resource definitions.
func awaitEstablished(ctx context.Context, c objects, list []*unstructured.Unstructured) error {
	for _, o := range list {
		if o.GetKind() != definitions.name {
			continue
		}
		var last string
		err := until(ctx, func() (bool, error) {
			live, err := c.Get(ctx, definitions.GroupVersionResource, "", o.GetName())
			if err != nil {
				return false, err
			}
			last = condition(live, "NamesAccepted", "False")
			return condition(live, "Established", "True") != "", nil
		})
		if err != nil {
			return refused("establish", o, fmt.Errorf("%w %s", err, last))
		}
	}
	return nil
}

// condition returns the message of a condition with this status, or its type if it has no message; empty: it has none.
func condition(o *unstructured.Unstructured, of, status string) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		m, _ := item.(map[string]any)
		if m["type"] != of || m["status"] != status {
			continue
		}
		if text, _ := m["message"].(string); text != "" {
			return text
		}
		return of
	}
	return ""
}
