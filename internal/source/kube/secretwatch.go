package kube

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
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
		if key.Kind == model.KindConfigMap {
			Watch(ctx, key.String(), lw, &corev1.ConfigMap{}, handler(c, w, c.Decoder.Authorities))
			return
		}
		Watch(ctx, key.String(), lw, &corev1.Secret{}, handler(c, w, c.Decoder.Secret))
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

// handler keeps the content of a watch.
func handler[P metav1.Object](c *Credentials, w *secretWatch, decode func(P) (*model.Secret, problem.List)) Handler[P] {
	set := func(s *model.Secret) {
		w.set(s, "")
		c.poke()
	}
	return Handler[P]{
		Upsert: func(o P) {
			if o.GetName() == w.key.Name {
				s, _ := decode(o)
				set(s)
			}
		},
		Remove: func(types.NamespacedName) { set(nil) },
		Listed: func() {
			if s, problem, known := w.get(); !known || s == nil || problem != "" {
				set(nil) // the list was empty
			}
		},
	}
}
