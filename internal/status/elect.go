package status

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leases are the Leases of a namespace.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// elector stands for the Lease of who writes statuses, by the rules of client-go's elector: a holder is
// believed for as long as its Lease says after that was last seen to change, by the clock of who looks.
// client-go's package has informers of all kinds in it, and what they need, which no other part of the
// program does. It belongs to one goroutine at a time.
type elector struct {
	leases   leases
	identity string
	timing   Election
	tell     func(context.Context, error) // why the Lease cannot be had; nil: it was written

	lease *coordinationv1.Lease // as it was last read or written; nil: not yet, or it is not there
	since time.Time             // when it was first seen to be so
	stale bool                  // a write has failed: somebody else may have changed it
}

// acquire tries until the Lease is had; false: ctx has ended.
func (e *elector) acquire(ctx context.Context) bool {
	for {
		step, cancel := context.WithTimeout(ctx, e.timing.Renew)
		had := e.try(step)
		cancel()
		if had {
			return true
		}
		if !pause(ctx, e.timing.Retry+rand.N(e.timing.Retry)) { // not all at once
			return false
		}
	}
}

// keep renews the Lease until ctx ends, another one has it, or it could not be renewed for timing.Renew.
func (e *elector) keep(ctx context.Context) {
	for renewed := time.Now(); pause(ctx, e.timing.Retry); {
		began := time.Now()
		step, cancel := context.WithDeadline(ctx, renewed.Add(e.timing.Renew))
		had := e.try(step)
		over := step.Err() != nil
		cancel()
		switch {
		case had:
			renewed = began
		case over || !e.holds():
			return
		}
	}
}

// release lets the Lease go, so that others need not wait until it is over.
func (e *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.timing.Renew)
	defer cancel()
	if e.stale && !e.look(ctx) || !e.holds() {
		return
	}
	free := e.next()
	free.Spec.HolderIdentity, free.Spec.LeaseDurationSeconds = nil, new(int32(1))
	e.write(ctx, free)
}

// try has or renews the Lease; false: another one holds it, or it cannot be read or written.
func (e *elector) try(ctx context.Context) bool {
	if e.holds() && !e.stale || e.look(ctx) {
		return e.write(ctx, e.next())
	}
	return false
}

// look reads the Lease, and tells whether it is free for this elector, or its own.
func (e *elector) look(ctx context.Context) bool {
	now, err := e.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		now = nil
	case err != nil:
		e.tell(ctx, err)
		return false
	}
	if e.lease == nil || now == nil || e.lease.ResourceVersion != now.ResourceVersion {
		e.since = time.Now()
	}
	e.lease, e.stale = now, false
	return e.holder() == "" || e.holds() || time.Since(e.since) >= e.lasts()
}

// write writes the Lease, if nobody has written it since it was read.
func (e *elector) write(ctx context.Context, next *coordinationv1.Lease) bool {
	put := func() (*coordinationv1.Lease, error) { return e.leases.Update(ctx, next, metav1.UpdateOptions{}) }
	if e.lease == nil {
		put = func() (*coordinationv1.Lease, error) { return e.leases.Create(ctx, next, metav1.CreateOptions{}) }
	}
	now, err := put()
	if e.tell(ctx, err); err != nil {
		e.stale = true
		return false
	}
	e.lease, e.since = now, time.Now()
	return true
}

// next is the Lease with this elector as its holder, renewed now.
func (e *elector) next() *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName}}
	if e.lease != nil {
		out = e.lease.DeepCopy()
	}
	now, s := metav1.NowMicro(), &out.Spec
	if !e.holds() {
		changes := int32(0)
		if s.LeaseTransitions != nil {
			changes = *s.LeaseTransitions + 1
		}
		s.AcquireTime, s.LeaseTransitions = &now, &changes
	}
	s.HolderIdentity, s.RenewTime, s.LeaseDurationSeconds = &e.identity, &now, new(int32(e.timing.Lease.Seconds()))
	return out
}

func (e *elector) holder() string {
	if e.lease == nil || e.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *e.lease.Spec.HolderIdentity
}

func (e *elector) holds() bool { return e.holder() == e.identity }

// lasts is how long the holder is believed.
func (e *elector) lasts() time.Duration {
	if e.lease == nil || e.lease.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*e.lease.Spec.LeaseDurationSeconds) * time.Second
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}
