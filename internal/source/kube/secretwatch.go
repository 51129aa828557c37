package kube

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
)

// secretWatch is the watch of one Secret.
type secretWatch struct {
	key      model.Key
	author   string          // the namespace whose bound it counts for: its own if an object there refers to it, else the first that does
	keyAsked bool            // a rule needs its key
	readers  map[string]bool // service accounts of workloads that need the key
	trusted  map[string]bool // of these, those that need no review
	sent     *model.Secret   // the last object in the intake; nil: none
	serial   uint64
	stop     context.CancelFunc
	ended    chan struct{}

	mu      sync.Mutex // guards what follows: the Reflector writes it
	listed  bool
	secret  *model.Secret // nil: it does not exist
	problem string        // why it cannot be read
}

// watch starts to watch one Secret.
func (c *Credentials) watch(ctx context.Context, key model.Key) *secretWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &secretWatch{key: key, stop: stop, ended: make(chan struct{})}
	kind := &resource{
		Resource: config.Resource{Kind: string(key.Kind)}, version: "v1", plural: "secrets", example: &corev1.Secret{},
		namespace: key.Namespace, field: "metadata.name=" + key.Name,
	}
	if key.Kind == model.KindConfigMap {
		kind.plural, kind.example = "configmaps", &corev1.ConfigMap{}
	}
	go func() {
		defer close(w.ended)
		lw, err := c.Client.listWatch(kind, func(err error) { c.record(w, err) })
		if err != nil {
			c.record(w, err)
			return
		}
		quiet := logr.Discard()
		options := cache.ReflectorOptions{Name: key.String(), TypeDescription: string(key.Kind), Logger: &quiet, Backoff: backoff()}
		cache.NewReflectorWithOptions(lw, kind.example, &secretSink{c, w}, options).RunWithContext(logr.NewContext(ctx, quiet))
	}()
	return w
}

// record records the result of a request. The last content stays in force while the API server does not answer, but not
// without permission.
func (c *Credentials) record(w *secretWatch, err error) {
	if !apierrors.IsForbidden(err) {
		return
	}
	role := "moonsail-credentials"
	if w.key.Kind == model.KindConfigMap {
		role = "moonsail-authorities"
	}
	w.set(nil, "the control plane may not read it: bind the ClusterRole "+role+" to its service account in namespace "+w.key.Namespace)
	c.poke()
}

func (w *secretWatch) set(s *model.Secret, problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed, w.secret, w.problem = true, s, problem
}

func (w *secretWatch) get() (s *model.Secret, problem string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.secret, w.problem, w.listed
}

// secretSink stores one Secret for a Reflector.
type secretSink struct {
	keeper *Credentials
	watch  *secretWatch
}

func (s *secretSink) take(o any) {
	if m, ok := o.(metav1.Object); !ok || m.GetName() != s.watch.key.Name {
		return
	}
	var decoded *model.Secret
	switch o := o.(type) {
	case *corev1.Secret:
		decoded, _ = s.keeper.Decoder.Secret(o)
	case *corev1.ConfigMap:
		decoded, _ = s.keeper.Decoder.Authorities(o)
	}
	s.watch.set(decoded, "")
	s.keeper.poke()
}

// Add implements cache.ReflectorStore.
func (s *secretSink) Add(o any) error { s.take(o); return nil }

// Update implements cache.ReflectorStore.
func (s *secretSink) Update(o any) error { s.take(o); return nil }

// Delete implements cache.ReflectorStore.
func (s *secretSink) Delete(any) error {
	s.watch.set(nil, "")
	s.keeper.poke()
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *secretSink) Replace(list []any, _ string) error {
	if len(list) == 0 {
		return s.Delete(nil)
	}
	s.take(list[0])
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (s *secretSink) Resync() error { return nil }
