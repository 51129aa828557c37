package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/security/certpem"
	"github.com/moonsail/moonsail/internal/security/workloadapi"
)

// delivery is one call of the goroutine that follows the Workload API: an answer, or an error.
type delivery struct {
	answer *workloadapi.Answer
	err    error
	wait   chan<- time.Duration // gets the time until the next attempt, after an error
}

// follow takes the certificates that the Workload API sends, until ctx ends. The API sends the next one in time, and sends
// changed roots at once.
func (r *Renewer) follow(ctx context.Context) {
	deliveries := make(chan delivery)
	go func() {
		defer close(deliveries)
		workloadapi.Follow(ctx, r.WorkloadAPI, func(a *workloadapi.Answer) { deliver(ctx, deliveries, delivery{answer: a}) },
			func(err error) time.Duration {
				wait := make(chan time.Duration, 1)
				deliver(ctx, deliveries, delivery{err: err, wait: wait})
				select {
				case d := <-wait:
					return d
				case <-ctx.Done():
					return 0
				}
			})
	}()
	poll := time.NewTicker(orDefault(r.poll, pollEvery))
	defer poll.Stop()
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			r.take(d)
		case <-poll.C:
			r.writeAgain()
		}
	}
}

func deliver(ctx context.Context, to chan<- delivery, d delivery) {
	select {
	case to <- d:
	case <-ctx.Done():
	}
}

// take applies a delivery.
func (r *Renewer) take(d delivery) {
	if d.err != nil {
		r.Metrics.called(0, d.err)
		d.wait <- r.failed(d.err)
		return
	}
	s, err := r.fromAnswer(d.answer)
	if err != nil {
		err = fmt.Errorf("%s: %w", r.place(), err)
		r.Metrics.called(0, err)
		r.failed(err) // the API sends another answer when it has one
		return
	}
	r.succeeded(s)
	r.mu.Lock()
	r.renewAt = time.Time{} // the API decides
	r.mu.Unlock()
	r.Log.Info("certificate", "id", s.id(), "until", s.Leaf().NotAfter.Format(time.RFC3339), "from", r.place(), "federated", len(s.Federated))
}

// fromAnswer selects this workload's identity, and checks it.
func (r *Renewer) fromAnswer(a *workloadapi.Answer) (*Secrets, error) {
	own, err := r.choose(a.Identities)
	if err != nil {
		return nil, err
	}
	key, err := encodeKey(own.Key)
	if err != nil {
		return nil, err
	}
	roots, others := a.Of(own.TrustDomain)
	if len(roots) == 0 {
		return nil, errors.New("an answer without roots of the trust domain " + own.TrustDomain)
	}
	s := &Secrets{
		Chain: certpem.Encode(own.Chain...), Key: key, Roots: certpem.Encode(roots...), pair: pairOf(own.Chain, own.Key), got: time.Now(),
	}
	for _, b := range others {
		s.TrustDomain = own.TrustDomain
		s.Federated = append(s.Federated, Bundle{TrustDomain: b.TrustDomain, Roots: certpem.Encode(b.Roots...)})
	}
	s.pool = poolOf(s.Roots)
	return s, r.check(s, own.Chain)
}

// choose returns the identity of this workload's namespace and service account, in the mesh's trust domain if there are
// several; else the default one, which is refused.
func (r *Renewer) choose(identities []workloadapi.Identity) (workloadapi.Identity, error) {
	path := spiffeID("", r.Namespace, r.ServiceAccount).Path
	chosen := -1
	for i, id := range identities {
		if id.ID != "spiffe://"+id.TrustDomain+path {
			continue
		}
		if chosen < 0 || id.TrustDomain == r.TrustDomain {
			chosen = i
		}
	}
	if chosen < 0 {
		return workloadapi.Identity{}, fmt.Errorf("the certificate is for %s, but this workload has namespace %s and service account %s: "+
			"register it there as spiffe://TRUST-DOMAIN%s", identities[0].ID, r.Namespace, r.ServiceAccount, path)
	}
	return identities[chosen], nil
}

func (b Bundle) equal(other Bundle) bool {
	return b.TrustDomain == other.TrustDomain && bytes.Equal(b.Roots, other.Roots)
}
