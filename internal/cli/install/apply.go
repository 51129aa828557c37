package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/moonsail/moonsail/internal/terminal"
)

// applyAll applies objects in order.
func applyAll(ctx context.Context, c objects, list []*unstructured.Unstructured, note func(*unstructured.Unstructured)) error {
	for _, o := range list {
		note(o)
		k, err := kindOf(o)
		if err != nil {
			return err
		}
		if leavesReplicas(o) {
			if err := keepReplicas(ctx, c, o); err != nil {
				return refused("apply", o, err)
			}
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
		if err := awaitGone(ctx, c, o); err != nil {
			return err
		}
	}
	return nil
}

// awaitGone waits until an object does not exist.
func awaitGone(ctx context.Context, c objects, o *unstructured.Unstructured) error {
	k, err := kindOf(o)
	if err != nil {
		return err
	}
	var finalizers []string
	err = until(ctx, func() (bool, error) {
		live, err := c.Get(ctx, k.GroupVersionResource, o.GetNamespace(), o.GetName())
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err == nil {
			finalizers = live.GetFinalizers()
		}
		return false, err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && len(finalizers) > 0:
		return &terminal.UserError{What: "the object still exists", Where: titleOf(o), Next: "its finalizers keep it (" + strings.Join(finalizers, ", ") + "): start what removes them, or raise --timeout"}
	}
	return refused("delete", o, err)
}

// pollEvery is the interval of checks of a condition.
const pollEvery = 500 * time.Millisecond

// until calls check until it returns true or an error that does not pass, or ctx ends. API servers restart and webhooks time
// out while a control plane is installed.
func until(ctx context.Context, check func() (bool, error)) error {
	var passing error // of the last check
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(context.Context) (bool, error) {
		done, err := check()
		if passing = nil; !done && err != nil && passes(err) {
			passing, err = err, nil
		}
		return done, err
	})
	if err != nil && passing != nil && !errors.Is(passing, err) {
		return fmt.Errorf("%w: %w", err, passing)
	}
	return err
}

// passes reports whether the same request may succeed later. Answers about the request or the user do not change.
func passes(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, // no answer of an API server, for example: connection refused
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError:
		return true
	}
	return false
}
