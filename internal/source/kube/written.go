package kube

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// committed returns the newest time in an object, in whole seconds: its creation, a write of a field with a manager, or
// the request for a graceful deletion.
func committed(m metav1.Object) time.Time {
	at := m.GetCreationTimestamp().Time
	for _, f := range m.GetManagedFields() {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	if d := m.GetDeletionTimestamp(); d != nil { // the end of the grace period
		var grace int64
		if g := m.GetDeletionGracePeriodSeconds(); g != nil {
			grace = *g
		}
		if asked := d.Add(-time.Duration(grace) * time.Second); asked.After(at) {
			at = asked
		}
	}
	return at
}

// fresh returns when an entry's version was written; zero if that is unknown, because its newest time is not later than
// one of a version before. mu is held.
func (k *sink) fresh(e *entry) time.Time {
	if old, known := k.held[e.name]; known && e.committed.Unix() <= old.written {
		return time.Time{}
	}
	return e.committed
}
