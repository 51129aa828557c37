// Package election elects one control plane with a Lease of the API server.
//
// The rules and the Leases are those of client-go's package leaderelection, so that control planes of
// different versions respect each other. That package itself imports the clients and informers of every
// API group of Kubernetes.
//
// Invariants:
//   - A candidate leads from a write of the Lease that succeeded until the Lease's renewal has failed for
//     Timing.Renew, which is shorter than Timing.Lease: others wait longer than a leader leads.
//   - Time is this process's own: a Lease expires when it has not changed for its duration. Clocks of
//     different machines are not compared.
//   - The Lease is released after the leader's last action.
package election

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// Timing is how long a Lease lasts without renewal, for how long a leader tries to renew it, and how
// often candidates try.
type Timing struct{ Lease, Renew, Retry time.Duration }

// DefaultTiming is that of Kubernetes' own components.
var DefaultTiming = Timing{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}

// jitter is by how much a candidate's pause between tries varies, as a factor: candidates do not try in step.
const jitter = 1.2

// releasedSeconds is the duration of a Lease without holder; the API server does not accept 0.
const releasedSeconds = 1

// Leases stores Leases.
type Leases interface {
	Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)
	Create(ctx context.Context, o *coordinationv1.Lease) (*coordinationv1.Lease, error)
	Update(ctx context.Context, o *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// NewLeases returns the Leases of an API server.
func NewLeases(c *kube.Client) (Leases, error) {
	return kube.NewAPI[coordinationv1.Lease](c, coordinationv1.SchemeGroupVersion.WithResource("leases"), coordinationv1.AddToScheme)
}

// Candidate stands for election. One goroutine calls Run, once.
type Candidate struct {
	Leases          Leases
	Namespace, Name string // of the Lease
	Identity        string // among the candidates
	Timing          Timing
	// Warn is called with an error of the API server, once until a write succeeds.
	Warn func(error)

	lease  *coordinationv1.Lease // as it was read or written last; nil: never
	since  time.Time             // when its content was first seen
	errors logonce.Errors
}

// Run waits until this candidate is elected and calls lead, again and again until ctx ends. The context of
// lead ends with ctx, or when the Lease is lost.
func (c *Candidate) Run(ctx context.Context, lead func(context.Context)) {
	for c.acquire(ctx) {
		c.term(ctx, lead)
	}
}

// acquire tries until this candidate holds the Lease. It returns false if ctx ends first.
func (c *Candidate) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		if c.try(ctx) {
			return true
		}
		_ = clock.Sleep(ctx, c.Timing.Retry+time.Duration(rand.Float64()*jitter*float64(c.Timing.Retry)))
	}
	return false
}

// term calls lead and renews the Lease beside it. Renewal continues after the end of ctx, until lead returns.
func (c *Candidate) term(ctx context.Context, lead func(context.Context)) {
	working, stop := context.WithCancel(ctx)
	renewing, resign := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer stop()
		for c.renew(renewing) {
			_ = clock.Sleep(renewing, c.Timing.Retry)
		}
	}()
	lead(working)
	resign()
	<-ended
	c.release(context.WithoutCancel(ctx))
}

// renew tries for Timing.Renew to renew the Lease. It returns false if that fails, or if ctx ends.
func (c *Candidate) renew(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.Timing.Renew)
	defer cancel()
	for ctx.Err() == nil {
		if c.try(ctx) {
			return true
		}
		_ = clock.Sleep(ctx, c.Timing.Retry)
	}
	return false
}

// try takes or renews the Lease and reports whether this candidate holds it now.
func (c *Candidate) try(ctx context.Context) bool {
	if c.holds() && !c.expired() && c.put(ctx, c.claim()) == nil {
		return true // usually unchanged since the last renewal
	}
	have, err := c.Leases.Get(ctx, c.Namespace, c.Name)
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx) == nil
	case err != nil:
		c.warn(ctx, err)
		return false
	}
	c.observe(have)
	if c.holder() != "" && !c.holds() && !c.expired() {
		return false
	}
	return c.put(ctx, c.claim()) == nil
}

// observe notes a Lease that was read. Its time runs from the first sight of its content.
func (c *Candidate) observe(have *coordinationv1.Lease) {
	if c.lease == nil || !equality.Semantic.DeepEqual(have.Spec, c.lease.Spec) {
		c.since = time.Now()
	}
	c.lease = have
}

func (c *Candidate) holder() string {
	if c.lease == nil || c.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *c.lease.Spec.HolderIdentity
}

func (c *Candidate) holds() bool { return c.holder() == c.Identity }

func (c *Candidate) expired() bool {
	seconds := c.lease.Spec.LeaseDurationSeconds
	return seconds == nil || time.Since(c.since) >= time.Duration(*seconds)*time.Second
}

// claim is the content of a Lease that this candidate takes or renews.
func (c *Candidate) claim() coordinationv1.LeaseSpec {
	now, seconds, transitions := metav1.NowMicro(), int32(c.Timing.Lease/time.Second), int32(0)
	acquired := &now
	if c.lease != nil {
		if before := c.lease.Spec.LeaseTransitions; before != nil {
			transitions = *before
		}
		if c.holds() {
			acquired = c.lease.Spec.AcquireTime
		} else {
			transitions++
		}
	}
	return coordinationv1.LeaseSpec{
		HolderIdentity: &c.Identity, LeaseDurationSeconds: &seconds, AcquireTime: acquired, RenewTime: &now, LeaseTransitions: &transitions,
	}
}

func (c *Candidate) create(ctx context.Context) error {
	c.lease = nil
	return c.wrote(ctx)(c.Leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Spec: c.claim(),
	}))
}

// put writes the Lease. It fails with a conflict if the Lease has changed since c.lease.
func (c *Candidate) put(ctx context.Context, spec coordinationv1.LeaseSpec) error {
	next := c.lease.DeepCopy()
	next.Spec = spec
	return c.wrote(ctx)(c.Leases.Update(ctx, next))
}

// wrote returns a function that notes the result of a write.
func (c *Candidate) wrote(ctx context.Context) func(*coordinationv1.Lease, error) error {
	return func(have *coordinationv1.Lease, err error) error {
		if err != nil {
			c.warn(ctx, err)
			return err
		}
		c.lease, c.since = have, time.Now()
		c.errors.New(nil)
		return nil
	}
}

// release gives the Lease up, if this candidate still holds it: the next leader does not wait for its end.
func (c *Candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.Timing.Renew)
	defer cancel()
	for ctx.Err() == nil {
		have, err := c.Leases.Get(ctx, c.Namespace, c.Name)
		if err != nil {
			return
		}
		if c.observe(have); !c.holds() {
			return
		}
		now, seconds, none := metav1.NowMicro(), int32(releasedSeconds), ""
		err = c.put(ctx, coordinationv1.LeaseSpec{
			HolderIdentity: &none, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now,
			LeaseTransitions: have.Spec.LeaseTransitions,
		})
		if !apierrors.IsConflict(err) {
			return
		}
	}
}

// warn reports an error once. A conflict is none: another candidate was first.
func (c *Candidate) warn(ctx context.Context, err error) {
	if ctx.Err() == nil && !apierrors.IsConflict(err) && c.errors.New(err) {
		c.Warn(err)
	}
}
