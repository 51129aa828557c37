package status

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// Results of writes, for metrics.
const (
	resultWritten  = "written"
	resultConflict = "conflict"
	resultGone     = "gone"
	resultFailed   = "failed"
)

// limiter limits the rate of writes.
type limiter interface {
	Wait(ctx context.Context) error
}

// api is the part of the API server that this package calls.
type api interface {
	get(context.Context, *update) (*live, error)
	patch(context.Context, *update) (*live, error)
}

// writer writes statuses, one after the other.
type writer struct {
	tracker *Tracker
	api     api
	limit   limiter
	count   func(result string)
	log     *slog.Logger
	// forbidden is how long a resource is suspended if its statuses may not be written. logged has the
	// resources that the log has a line about.
	forbidden time.Duration
	logged    map[schema.GroupVersionResource]bool
	// firstPause is how long a resource is suspended after a failure of another kind. Further failures double it.
	firstPause time.Duration
	failing    map[schema.GroupVersionResource]*failures
	suspended  map[schema.GroupVersionResource]*time.Timer
}

// failures are those of a resource, one after the other.
type failures struct {
	errors logonce.Errors
	pause  time.Duration // after the last one; 0: the last write succeeded
}

// Bounds of what a failing API server costs.
const (
	firstPause  = 500 * time.Millisecond
	longest     = 30 * time.Second
	maxAttempts = 5 // attempts of one write, if others write the same object
	apiTimeout  = 10 * time.Second
)

// run writes what is queued until ctx ends.
func (w *writer) run(ctx context.Context) {
	w.logged, w.suspended = map[schema.GroupVersionResource]bool{}, map[schema.GroupVersionResource]*time.Timer{}
	w.failing = map[schema.GroupVersionResource]*failures{}
	defer w.resumeAll()
	for {
		k, ok := w.tracker.next(ctx)
		if !ok {
			return
		}
		switch err := w.write(ctx, k); {
		case ctx.Err() != nil:
			w.tracker.again(k)
			return
		case err == nil:
			w.succeed(k)
		case lasting(err):
			w.count(resultFailed)
			w.log.Warn("status rejected by the API server", "object", k.String(), "error", err)
		case apierrors.IsForbidden(err):
			w.count(resultFailed)
			w.suspend(k, err)
		default:
			w.count(resultFailed)
			w.backOff(k, err)
		}
	}
}

// lasting reports whether an error is about one object and would occur again.
func lasting(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsMethodNotSupported(err)
}

// suspend skips the resource of an object for a while, because its statuses may not be written.
func (w *writer) suspend(k model.Key, err error) {
	r, ok := w.tracker.suspend(k)
	if !ok {
		return
	}
	if !w.logged[r] {
		w.logged[r] = true
		w.log.Warn("no permission to write statuses of a resource, retrying: "+kube.GrantRights,
			"resource", r.GroupResource().String(), "object", k.String(), "error", err)
	}
	w.suspended[r] = time.AfterFunc(w.forbidden, func() { w.tracker.resume(r) })
}

// resumeAll resumes all suspended resources, for the next leader.
func (w *writer) resumeAll() {
	for r, timer := range w.suspended {
		timer.Stop()
		w.tracker.resume(r)
	}
}

// backOff suspends the resource of an object after a failure, longer after each. Other resources are written meanwhile: an
// admission webhook may fail for this one only.
func (w *writer) backOff(k model.Key, err error) {
	r, ok := w.tracker.suspend(k)
	if !ok {
		return
	}
	f := w.failing[r]
	if f == nil {
		f = &failures{}
		w.failing[r] = f
	}
	if f.errors.First(err) {
		w.log.Warn("status not written, retrying", "resource", r.GroupResource().String(), "object", k.String(), "error", err)
	}
	f.pause = min(max(2*f.pause, w.firstPause), longest)
	w.suspended[r] = time.AfterFunc(f.pause, func() { w.tracker.resume(r) })
}

// succeed ends the failures of an object's resource.
func (w *writer) succeed(k model.Key) {
	if len(w.failing) == 0 {
		return
	}
	if r, ok := w.tracker.resourceOf(k); ok {
		delete(w.failing, r)
	}
}

// write brings an object's status up to date. Each attempt waits for its turn first, so that it writes the
// newest state.
func (w *writer) write(ctx context.Context, k model.Key) error {
	for range maxAttempts {
		if err := w.limit.Wait(ctx); err != nil {
			return err
		}
		u, err := w.tracker.update(k, time.Now())
		if u == nil || err != nil {
			return err
		}
		have, err := w.api.patch(ctx, u)
		switch {
		case err == nil:
			w.count(resultWritten)
			w.tracker.found(k, have)
			return nil
		case apierrors.IsNotFound(err):
			w.count(resultGone)
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
		w.count(resultConflict)
		if again, err := w.refresh(ctx, u); !again {
			return err
		}
	}
	return errors.New("other writers change the object too often")
}

// refresh reads the newest form of an object that another writer changed. It returns false if there is
// nothing to write.
func (w *writer) refresh(ctx context.Context, u *update) (bool, error) {
	have, err := w.api.get(ctx, u)
	if apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return w.tracker.found(u.key, have), nil
}

// cluster is the API server.
type cluster struct{ client dynamic.Interface }

func (c cluster) get(ctx context.Context, u *update) (*live, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return liveOf(c.client.Resource(u.resource).Namespace(u.key.Namespace).Get(ctx, u.key.Name, metav1.GetOptions{}))
}

func (c cluster) patch(ctx context.Context, u *update) (*live, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	options := metav1.PatchOptions{FieldManager: fieldManager}
	return liveOf(c.client.Resource(u.resource).Namespace(u.key.Namespace).
		Patch(ctx, u.key.Name, types.MergePatchType, u.patch, options, "status"))
}

func liveOf(o *unstructured.Unstructured, err error) (*live, error) {
	if err != nil {
		return nil, err
	}
	status, err := json.Marshal(o.Object["status"])
	return &live{o.GetResourceVersion(), o.GetGeneration(), status}, err
}
