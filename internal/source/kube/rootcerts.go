package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/security/revocation"
)

// Istio's names of the ConfigMap with the roots for Pods.
const (
	RootCertName  = "istio-ca-root-cert"
	RootCertKey   = "root-cert.pem"
	RevokedKey    = revocation.FileName // Istio has a ConfigMap istio-ca-crl for it
	rootCertLabel = "istio.io/config"
)

// RootCerts keeps the roots in a ConfigMap of each namespace. Several control planes may do that at the same time: a
// correct ConfigMap is not written.
type RootCerts struct {
	Client *Client
	// Trust returns the content, and a channel that is closed when it changes.
	Trust func() (revocation.Trust, <-chan struct{})
	// Namespaces returns the namespaces that need the ConfigMap; false: unknown yet. It is called often and must be
	// fast.
	Namespaces func() (list []string, known bool)
	Log        *slog.Logger

	api *API[corev1.ConfigMap, *corev1.ConfigMap]
	due map[string]*due // of namespaces with writes; used by Run's goroutine only

	mu     sync.Mutex // guards the fields below
	listed bool
	have   map[string]revocation.Trust // by namespace
	wake   chan struct{}
}

// due is the time of the next write to a namespace. If another writer keeps changing the ConfigMap, the two must not
// flood the API server.
type due struct {
	next   time.Time
	delay  time.Duration
	logged bool
}

// Timing.
const (
	rootsEvery   = 200 * time.Millisecond // interval of checks for new namespaces
	rootsTimeout = 10 * time.Second       // of one write
	rootsAgain   = 500 * time.Millisecond // until a second write, and twice that until a third
	rootsLongest = time.Minute
)

// Run keeps the ConfigMaps until ctx ends.
func (r *RootCerts) Run(ctx context.Context) error {
	api, err := r.Client.configMaps()
	if err != nil {
		return err
	}
	r.api, r.due, r.have, r.wake = api, map[string]*due{}, map[string]revocation.Trust{}, make(chan struct{}, 1)
	kind := &resource{
		Resource: config.Resource{Kind: "ConfigMap"}, version: "v1", plural: "configmaps", example: &corev1.ConfigMap{},
		field: "metadata.name=" + RootCertName,
	}
	lw, err := r.Client.listWatch(kind, r.record())
	if err != nil {
		return err
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { Watch(ctx, RootCertName, lw, &corev1.ConfigMap{}, r.handler()) })
	r.keep(ctx)
	return nil
}

// record logs once that the ConfigMaps cannot be read.
func (r *RootCerts) record() func(error) {
	var errs logonce.Errors
	return func(err error) {
		if errs.First(err) && apierrors.IsForbidden(err) {
			r.Log.Warn("namespaces do not get the mesh's roots: ConfigMaps of this name cannot be read; allow it in a ClusterRole", "name", RootCertName, "error", err)
		}
	}
}

// keep writes missing ConfigMaps at once.
func (r *RootCerts) keep(ctx context.Context) {
	tick := time.NewTicker(rootsEvery)
	defer tick.Stop()
	for {
		trust, changed := r.Trust()
		r.complete(ctx, trust)
		select {
		case <-ctx.Done():
			return
		case <-changed:
			clear(r.due)
		case <-r.wake:
		case <-tick.C:
		}
	}
}

// complete writes to the namespaces that lack the roots.
func (r *RootCerts) complete(ctx context.Context, trust revocation.Trust) {
	list, known := r.Namespaces()
	if !known {
		return
	}
	if len(r.due) > len(list) {
		maps.DeleteFunc(r.due, func(ns string, _ *due) bool { return !slices.Contains(list, ns) })
	}
	for _, ns := range r.lacking(list, trust) {
		if d := r.dueOf(ns, time.Now()); d != nil {
			r.write(ctx, ns, trust, d)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// dueOf records a write to a namespace; nil: it is too early.
func (r *RootCerts) dueOf(ns string, now time.Time) *due {
	d := r.due[ns]
	switch {
	case d == nil || now.Sub(d.next) > rootsLongest:
		d = &due{delay: rootsAgain}
		r.due[ns] = d
	case now.Before(d.next):
		return nil
	}
	d.next = now.Add(d.delay)
	d.delay = min(2*d.delay, rootsLongest)
	return d
}

// lacking returns the namespaces without the roots.
func (r *RootCerts) lacking(list []string, trust revocation.Trust) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.listed {
		return nil
	}
	return slices.DeleteFunc(list, func(ns string) bool { return agree(r.have[ns], trust) })
}

// agree reports whether a ConfigMap has what it needs. An authority that does not know the lists of revoked certificates
// leaves them.
func agree(have, need revocation.Trust) bool {
	return have.Roots == need.Roots && (need.Unread || have.Revoked == need.Revoked)
}

// write writes to one namespace. The end of the namespace is not a failure.
func (r *RootCerts) write(ctx context.Context, ns string, trust revocation.Trust, d *due) {
	ctx, cancel := context.WithTimeout(ctx, rootsTimeout)
	defer cancel()
	err := r.put(ctx, ns, trust)
	switch {
	case err == nil:
		if d.delay > rootsLongest/4 && !d.logged {
			d.logged = true
			r.Log.Warn("another writer keeps changing this ConfigMap to other roots; look for a second certificate authority", "namespace", ns, "name", RootCertName)
		}
	case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
	case !d.logged:
		d.logged = true
		r.Log.Warn("a namespace did not get the mesh's roots; the write is repeated", "namespace", ns, "name", RootCertName, "error", err)
	}
}

// put patches the ConfigMap, or creates it.
func (r *RootCerts) put(ctx context.Context, ns string, trust revocation.Trust) error {
	data := map[string]string{RootCertKey: trust.Roots}
	changes := map[string]any{RootCertKey: trust.Roots}
	switch {
	case trust.Revoked != "":
		data[RevokedKey], changes[RevokedKey] = trust.Revoked, trust.Revoked
	case !trust.Unread:
		changes[RevokedKey] = nil // removes the key
	}
	patch, err := json.Marshal(map[string]any{"data": changes})
	if err != nil {
		return err
	}
	_, err = r.api.Merge(ctx, ns, RootCertName, patch)
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = r.api.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: RootCertName, Labels: map[string]string{rootCertLabel: "true"}}, Data: data,
	})
	return err
}

// handler keeps the known ConfigMaps.
func (r *RootCerts) handler() Handler[*corev1.ConfigMap] {
	return Handler[*corev1.ConfigMap]{
		Upsert: func(m *corev1.ConfigMap) {
			r.see(func() {
				r.have[m.Namespace] = revocation.Trust{Roots: m.Data[RootCertKey], Revoked: m.Data[RevokedKey]}
			})
		},
		Remove: func(n types.NamespacedName) { r.see(func() { delete(r.have, n.Namespace) }) },
		Listed: func() { r.see(func() { r.listed = true }) },
	}
}

// see applies a change, and wakes keep.
func (r *RootCerts) see(note func()) {
	r.mu.Lock()
	note()
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
