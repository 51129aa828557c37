package install

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
)

// What a change does to an object.
const (
	created   = "create"
	changed   = "change"
	unchanged = "unchanged"
	removed   = "remove"
	kept      = "keep" // it belongs to another installation
)

// change is what happens to one object.
type change struct {
	Action string   `json:"action"`
	Object string   `json:"object"`
	Fields []string `json:"fields,omitempty"` // that differ, as "path: old -> new"

	object *unstructured.Unstructured
}

// plan compares objects with those of the cluster. Objects of the inventory that the list does not have are removed.
func plan(ctx context.Context, c objects, list, have []*unstructured.Unstructured) ([]change, error) {
	var out []change
	for _, o := range list {
		one, err := compare(ctx, c, o)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	for _, o := range surplus(have, list) {
		out = append(out, change{Action: removed, Object: titleOf(o), object: o})
	}
	return out, nil
}

func isRecord(o *unstructured.Unstructured) bool {
	return o.GetKind() == secrets.name && strings.HasPrefix(o.GetName(), recordName(model.DefaultRevision))
}

// compare applies an object without storing it.
func compare(ctx context.Context, c objects, o *unstructured.Unstructured) (change, error) {
	out := change{Object: titleOf(o), object: o}
	k, err := kindOf(o)
	if err != nil {
		return out, err
	}
	live, err := c.Get(ctx, k.GroupVersionResource, o.GetNamespace(), o.GetName())
	if apierrors.IsNotFound(err) {
		out.Action = created
		return out, nil
	}
	if err != nil {
		return out, refused("read", o, err)
	}
	after, err := c.Apply(ctx, k.GroupVersionResource, o, true)
	if err != nil {
		return out, refused("apply", o, err)
	}
	out.Action = unchanged
	if out.Fields = differences(live.Object, after.Object); len(out.Fields) > 0 {
		out.Action = changed
	}
	return out, nil
}

// serverFields are fields that the API server writes.
var serverFields = []string{"metadata.managedFields", "metadata.resourceVersion", "metadata.generation", "metadata.uid", "metadata.creationTimestamp", "status"}

// differences lists the fields in which two objects differ, sorted.
func differences(before, after map[string]any) []string {
	var out []string
	compareFields("", before, after, &out)
	sort.Strings(out)
	return out
}

func compareFields(path string, before, after any, out *[]string) {
	if slices.Contains(serverFields, path) || reflect.DeepEqual(before, after) {
		return
	}
	b, isMap := before.(map[string]any)
	a, stillMap := after.(map[string]any)
	if isMap && stillMap {
		for _, key := range keysOf(b, a) {
			compareFields(strings.TrimPrefix(path+"."+key, "."), b[key], a[key], out)
		}
		return
	}
	bs, isList := before.([]any)
	as, stillList := after.([]any)
	if isList && stillList && len(as) == len(bs) {
		for i := range bs {
			compareFields(fmt.Sprintf("%s[%d]", path, i), bs[i], as[i], out)
		}
		return
	}
	*out = append(*out, fmt.Sprintf("%s: %s -> %s", path, short(before), short(after)))
}

func keysOf(maps ...map[string]any) []string {
	seen := map[string]bool{}
	for _, m := range maps {
		for k := range m {
			seen[k] = true
		}
	}
	out := make([]string, 0, len(seen))
	for k := range seen {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// longest is the number of characters of a value that a difference shows.
const longest = 120

func short(v any) string {
	if v == nil {
		return "(none)"
	}
	text := strings.ReplaceAll(fmt.Sprint(v), "\n", `\n`)
	if r := []rune(text); len(r) > longest {
		return string(r[:longest]) + "..."
	}
	return text
}

// applyAll applies objects in order.
func applyAll(ctx context.Context, c objects, list []*unstructured.Unstructured, note func(*unstructured.Unstructured)) error {
	for _, o := range list {
		note(o)
		k, err := kindOf(o)
		if err != nil {
			return err
		}
		if _, err := c.Apply(ctx, k.GroupVersionResource, o, false); err != nil {
			return refused("apply", o, err)
		}
	}
	return nil
}

// deleteAll deletes objects, and waits until they are gone.
func deleteAll(ctx context.Context, c objects, list []*unstructured.Unstructured, note func(*unstructured.Unstructured)) error {
	for _, o := range list {
		note(o)
		k, err := kindOf(o)
		if err != nil {
			return err
		}
		if err := c.Delete(ctx, k.GroupVersionResource, o.GetNamespace(), o.GetName()); err != nil && !apierrors.IsNotFound(err) {
			return refused("delete", o, err)
		}
	}
	for _, o := range list {
		k, _ := kindOf(o)
		err := until(ctx, func() (bool, error) {
			_, err := c.Get(ctx, k.GroupVersionResource, o.GetNamespace(), o.GetName())
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
		if err != nil {
			return refused("delete", o, err)
		}
	}
	return nil
}

// pollEvery is the interval of checks of a condition.
const pollEvery = 500 * time.Millisecond

// until calls check until it returns true or an error, or ctx ends.
func until(ctx context.Context, check func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := check()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// definitionsToApply returns the resource definitions of the chart base that are new or ours. Those of another
// installation stay as they are: it may need a later version.
func definitionsToApply(ctx context.Context, c objects, list []*unstructured.Unstructured) (apply []*unstructured.Unstructured, others []change, err error) {
	have, err := definitionsByName(ctx, c)
	if err != nil {
		return nil, nil, err
	}
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
