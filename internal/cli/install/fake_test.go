package install

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/deploy"
)

// fakeCluster is an API server with the controllers that a control plane needs.
type fakeCluster struct {
	objects map[string]map[string]any // by "resource namespace/name"
	ready   bool                      // Deployments get ready, and webhooks a CA
	applied bool                      // a Deployment was applied by this command
	expire  func()                    // ends the time of the command
	writes  []string                  // "verb resource namespace/name"; no dry runs
	version int
}

func newFakeCluster() *fakeCluster {
	c := &fakeCluster{objects: map[string]map[string]any{}, ready: true}
	c.add("kind: Namespace\napiVersion: v1\nmetadata: {name: shop, labels: {istio-injection: enabled}}\n")
	return c
}

// add stores objects of others.
func (c *fakeCluster) add(texts ...string) {
	for _, text := range texts {
		list, err := deploy.Decode([]byte(text))
		if err != nil {
			panic(err)
		}
		for _, o := range list {
			k, err := kindOf(o)
			if err != nil {
				k = builtIn("", "v1", "pods", "Pod", true)
			}
			c.store(k.GroupVersionResource, o.Object)
		}
	}
}

func keyOf(r schema.GroupVersionResource, namespace, name string) string {
	return r.Resource + " " + namespace + "/" + name
}

func (c *fakeCluster) store(r schema.GroupVersionResource, object map[string]any) {
	o := &unstructured.Unstructured{Object: object}
	c.version++
	o.SetResourceVersion(strconv.Itoa(c.version))
	c.objects[keyOf(r, o.GetNamespace(), o.GetName())] = object
}

// names returns the keys of all objects, sorted.
func (c *fakeCluster) names() []string {
	var out []string
	for key := range c.objects {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

func (c *fakeCluster) Get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	object := c.objects[keyOf(r, namespace, name)]
	if object == nil {
		return nil, apierrors.NewNotFound(r.GroupResource(), name)
	}
	o := (&unstructured.Unstructured{Object: object}).DeepCopy()
	if c.ready || r.Resource == definitions.Resource {
		makeReady(o)
	}
	if !c.ready && c.applied && r == deployments.GroupVersionResource || o.GetDeletionTimestamp() != nil {
		c.expire() // more requests would get the same answer
	}
	return o, nil
}

func makeReady(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case deployments.name:
		n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		o.Object["status"] = map[string]any{"observedGeneration": o.GetGeneration(), "replicas": n, "updatedReplicas": n, "availableReplicas": n}
	case definitions.name:
		o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	case mutating.name, validating.name:
		hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, h := range hooks {
			h.(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = "Y2E="
		}
		o.Object["webhooks"] = hooks
	}
}

func (c *fakeCluster) List(ctx context.Context, r schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var out []unstructured.Unstructured
	for _, key := range c.names() {
		o := unstructured.Unstructured{Object: c.objects[key]}
		if strings.HasPrefix(key, r.Resource+" "+namespace) && parsed.Matches(labels.Set(o.GetLabels())) {
			out = append(out, *o.DeepCopy())
		}
	}
	return out, ctx.Err()
}

func (c *fakeCluster) Named(ctx context.Context, r schema.GroupVersionResource, name string) ([]unstructured.Unstructured, error) {
	list, err := c.List(ctx, r, "", "")
	return slices.DeleteFunc(list, func(o unstructured.Unstructured) bool { return o.GetName() != name }), err
}

func (c *fakeCluster) Count(ctx context.Context, r schema.GroupVersionResource) (int, error) {
	list, err := c.List(ctx, r, "", "")
	return len(list), err
}

// Apply merges as a server-side apply does, except that it keeps fields that an applier no longer has.
func (c *fakeCluster) Apply(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	key := keyOf(r, o.GetNamespace(), o.GetName())
	next, _ := merged(c.objects[key], o.DeepCopy().Object).(map[string]any)
	if !dryRun {
		c.writes = append(c.writes, "apply "+key)
		c.applied = c.applied || r == deployments.GroupVersionResource
		c.store(r, next)
	}
	out := (&unstructured.Unstructured{Object: next}).DeepCopy()
	if c.ready {
		makeReady(out)
	}
	return out, ctx.Err()
}

// Share stores nothing: Apply keeps all fields.
func (c *fakeCluster) Share(ctx context.Context, _ schema.GroupVersionResource, _ *unstructured.Unstructured, _ string) error {
	return ctx.Err()
}

// merged merges maps, and lists of objects with names.
func merged(old, given any) any {
	switch given := given.(type) {
	case map[string]any:
		out := map[string]any{}
		if old, ok := old.(map[string]any); ok {
			for k, v := range old {
				out[k] = v
			}
		}
		for k, v := range given {
			out[k] = merged(out[k], v)
		}
		return out
	case []any:
		before, _ := old.([]any)
		out := slices.Clone(before)
		for _, item := range given {
			i := slices.IndexFunc(out, func(o any) bool { return nameIn(o) != "" && nameIn(o) == nameIn(item) })
			switch {
			case nameIn(item) == "":
				return given
			case i >= 0:
				out[i] = merged(out[i], item)
			default:
				out = append(out, item)
			}
		}
		return out
	}
	return given
}

func nameIn(item any) string {
	m, _ := item.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

func (c *fakeCluster) Update(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	key := keyOf(r, o.GetNamespace(), o.GetName())
	c.writes = append(c.writes, "update "+key)
	live := unstructured.Unstructured{Object: c.objects[key]}
	if live.GetResourceVersion() != o.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.GroupResource(), o.GetName(), fmt.Errorf("version %s", live.GetResourceVersion()))
	}
	c.store(r, o.DeepCopy().Object)
	return o, ctx.Err()
}

func (c *fakeCluster) Delete(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	key := keyOf(r, namespace, name)
	c.writes = append(c.writes, "delete "+key)
	if c.objects[key] == nil {
		return apierrors.NewNotFound(r.GroupResource(), name)
	}
	o := &unstructured.Unstructured{Object: c.objects[key]}
	if len(o.GetFinalizers()) > 0 {
		o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(0, 0)})
		return ctx.Err()
	}
	delete(c.objects, key)
	return ctx.Err()
}

func (*fakeCluster) Allowed(context.Context, string, schema.GroupVersionResource, string) (bool, error) {
	return true, nil
}

func (*fakeCluster) Version(context.Context) (string, error) { return "v1.36.0", nil }

// session runs commands in a fake cluster, with --yes.
type session struct {
	t       *testing.T
	cluster *fakeCluster
	out     bytes.Buffer // of the last command
	notes   bytes.Buffer
	stdin   io.Reader // answers; nil: --yes
}

func newSession(t *testing.T) *session {
	t.Helper()
	return &session{t: t, cluster: newFakeCluster()}
}

// expiringContext is a context whose deadline comes when a test wants.
type expiringContext struct {
	context.Context
	done chan struct{}
}

func (c expiringContext) Done() <-chan struct{} { return c.done }

func (c expiringContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// operation returns a command with its flags.
func (s *session) operation(flags func(*operation)) *operation {
	s.t.Helper()
	s.out.Reset()
	s.notes.Reset()
	cmd := &cobra.Command{}
	ctx := expiringContext{s.t.Context(), make(chan struct{})}
	s.cluster.applied, s.cluster.expire = false, sync.OnceFunc(func() { close(ctx.done) })
	cmd.SetContext(ctx)
	cmd.SetOut(&s.out)
	cmd.SetErr(&s.notes)
	o := &operation{cmd: cmd, cluster: s.cluster, notes: &s.notes, wait: true, yes: s.stdin == nil, timeout: time.Minute}
	if s.stdin != nil {
		cmd.SetIn(s.stdin)
	}
	o.addFlags(cmd)
	o.out.AddFlag(cmd)
	if flags != nil {
		flags(o)
	}
	return o
}

// run runs a command within its timeout.
func (o *operation) run(f func(context.Context) error) error {
	ctx, cancel := o.timed()
	defer cancel()
	return f(ctx)
}

func (s *session) install(flags func(*operation)) error {
	s.t.Helper()
	o := s.operation(flags)
	base, controlPlane, err := o.releases(o.cmd, nil)
	require.NoError(s.t, err)
	return o.run(func(ctx context.Context) error { return o.install(ctx, base, controlPlane, true) })
}

func (s *session) upgrade(flags func(*operation)) error {
	s.t.Helper()
	o := s.operation(flags)
	return o.run(func(ctx context.Context) error { return o.upgrade(ctx, false) })
}

func (s *session) rollback() error {
	s.t.Helper()
	o := s.operation(nil)
	return o.run(o.rollback)
}

func (s *session) uninstall(purge bool, flags func(*operation)) error {
	s.t.Helper()
	o := s.operation(flags)
	return o.run(func(ctx context.Context) error { return o.uninstall(ctx, purge) })
}

// image returns the image of the control plane.
func (s *session) image() string {
	s.t.Helper()
	list, _, err := unstructured.NestedSlice(s.cluster.objects["deployments istio-system/moonsail"], "spec", "template", "spec", "containers")
	require.NoError(s.t, err)
	require.NotEmpty(s.t, list)
	image, _ := list[0].(map[string]any)["image"].(string)
	return image
}

func (s *session) record() *record {
	s.t.Helper()
	r, err := readRecord(s.t.Context(), s.cluster, "istio-system", "default")
	require.NoError(s.t, err)
	require.NotNil(s.t, r)
	return r
}

// image chooses the image of a control plane.
func image(name string) func(*operation) { return func(o *operation) { o.Image = name } }
