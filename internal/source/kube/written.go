package kube

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// committed is the newest time that an object has, to the second: of its creation, of a write of
// something that has an owner, or of the request to delete it gracefully, which no owner writes.
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

// fresh is when the version of an entry was written; zero where that is not known: where its newest time
// is not later than one of a version before, it is that one's, or nobody can tell. mu is held.
func (k *sink) fresh(e *entry) time.Time {
	if old, known := k.held[e.name]; known && e.committed.Unix() <= old.written {
		return time.Time{}
	}
	return e.committed
}
