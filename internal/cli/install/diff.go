package install

import (
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
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

// plan compares objects with those of the cluster. gone are the objects to remove.
func plan(ctx context.Context, c objects, list, gone []*unstructured.Unstructured) ([]change, error) {
	var out []change
	for _, o := range list {
		one, err := compare(ctx, c, o)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	for _, o := range gone {
		out = append(out, change{Action: removed, Object: titleOf(o), object: o})
	}
	return out, nil
}

func isRecord(o *unstructured.Unstructured) bool {
	return o.GetKind() == secrets.name && strings.HasPrefix(o.GetName(), recordName(model.DefaultRevision))
}

// differs reports whether a plan changes anything.
func differs(changes []change) bool {
	return slices.ContainsFunc(changes, func(c change) bool { return c.Action != unchanged && c.Action != kept })
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
	if leavesReplicas(o) {
		if err := withReplicas(live, after); err != nil {
			return out, refused("read", o, err)
		}
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
	slices.Sort(out)
	return out
}

// compareFields adds the fields of a subtree that differ. Lists of equal length are compared element by element, other lists
// as a whole.
func compareFields(path string, before, after any, out *[]string) {
	if slices.Contains(serverFields, path) || reflect.DeepEqual(before, after) {
		return
	}
	b, isMap := before.(map[string]any)
	a, stillMap := after.(map[string]any)
	if isMap && stillMap {
		keys := maps.Clone(b)
		maps.Copy(keys, a)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
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
	before, after = withoutCommonLines(before, after)
	*out = append(*out, fmt.Sprintf("%s: %s -> %s", path, short(before), short(after)))
}

// withoutCommonLines leaves out the lines with which two texts begin and end in common: a difference far into a text would not
// be shown otherwise.
func withoutCommonLines(before, after any) (any, any) {
	b, isText := before.(string)
	a, stillText := after.(string)
	if !isText || !stillText || !strings.Contains(b+a, "\n") {
		return before, after
	}
	bs, as := strings.SplitAfter(b, "\n"), strings.SplitAfter(a, "\n")
	for len(bs) > 0 && len(as) > 0 && bs[0] == as[0] {
		bs, as = bs[1:], as[1:]
	}
	for len(bs) > 0 && len(as) > 0 && bs[len(bs)-1] == as[len(as)-1] {
		bs, as = bs[:len(bs)-1], as[:len(as)-1]
	}
	if first, second := orNone(bs), orNone(as); first != second {
		return first, second
	}
	return before, after // they differ in the last line break
}

// orNone joins lines; nil: there are none.
func orNone(lines []string) any {
	if text := strings.TrimSuffix(strings.Join(lines, ""), "\n"); text != "" {
		return text
	}
	return nil
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

// surplus returns the objects of this revision that a state no longer has, and the roles that the chart base no longer has.
// base is nil if a command leaves that chart as it is.
func (o *operation) surplus(ctx context.Context, base []*unstructured.Unstructured, to *state, note func(string)) ([]*unstructured.Unstructured, error) {
	have, err := inventory(ctx, o.cluster, deploy.ControlPlaneChart, o.Revision)
	if err != nil {
		return nil, err
	}
	gone := without(have, to.Objects)
	if base != nil {
		shared, err := inventory(ctx, o.cluster, deploy.BaseChart, "")
		if err != nil {
			return nil, err
		}
		for _, one := range without(shared, base) {
			if one.GetKind() == roles.name { // resource definitions and the namespace have objects of users
				gone = append(gone, one)
			}
		}
	}
	return o.withoutReadMeshConfig(ctx, gone, note)
}

// without returns the objects of the inventory that are not wanted.
func without(have, want []*unstructured.Unstructured) []*unstructured.Unstructured {
	wanted := map[string]bool{}
	for _, o := range want {
		wanted[titleOf(o)] = true
	}
	var out []*unstructured.Unstructured
	for _, o := range have {
		if !wanted[titleOf(o)] && !isRecord(o) {
			out = append(out, o)
		}
	}
	return out
}

// show prints a plan. Unchanged objects are counted.
func (o *operation) show(w io.Writer, changes []change) error {
	same := 0
	style := terminal.StyleFor(w)
	for _, c := range changes {
		switch c.Action {
		case unchanged, kept:
			same++
			continue
		case created:
			fmt.Fprintln(w, style.Good("+ "+c.Object))
		case removed:
			fmt.Fprintln(w, style.Bad("- "+c.Object))
		default:
			fmt.Fprintln(w, style.Warn("~ "+c.Object))
		}
		for _, f := range c.Fields {
			fmt.Fprintln(w, "    "+f)
		}
	}
	_, err := fmt.Fprintf(w, "%s unchanged\n", terminal.Count(same, "object"))
	return err
}
