// Package workloadapi reads certificates from the SPIFFE Workload API, which the agent of SPIRE serves on a Unix socket of
// each machine. The API decides by the process that asks which identities it may have.
package workloadapi

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	api "github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// Answer is what the Workload API knows of this process at one time. It replaces the answer before it.
type Answer struct {
	Identities []Identity // at least one; the first is the default
	Bundles    []Bundle   // of the identities' trust domains, and of those that are federated with them; sorted
}

// Identity is one X.509-SVID.
type Identity struct {
	ID          string // spiffe://...
	TrustDomain string
	Chain       []*x509.Certificate // the identity's, then intermediates
	Key         crypto.Signer
}

// Bundle are the roots of a trust domain.
type Bundle struct {
	TrustDomain string
	Roots       []*x509.Certificate
}

// Of returns the roots of a trust domain, and the bundles of the others.
func (a *Answer) Of(trustDomain string) (roots []*x509.Certificate, others []Bundle) {
	for _, b := range a.Bundles {
		if b.TrustDomain == trustDomain {
			roots = b.Roots
		} else {
			others = append(others, b)
		}
	}
	return roots, others
}

// Check reports whether address names a Workload API.
func Check(address string) error {
	if err := api.ValidateAddress(address); err != nil {
		return fmt.Errorf("address of the Workload API %q: %w: use unix:///path", address, err)
	}
	return nil
}

// Follow calls took with each answer of the Workload API at address, and failed with each error, until ctx ends. failed
// returns the time until the next attempt. Calls are in one goroutine, in order.
func Follow(ctx context.Context, address string, took func(*Answer), failed func(error) time.Duration) {
	w := &watcher{ctx: ctx, took: took, failed: failed, address: address}
	for ctx.Err() == nil {
		// The library reports each error to w. The loop is for those after which it does not try again.
		_ = api.WatchX509Context(ctx, w, api.WithAddr(address), api.WithBackoffStrategy(w))
		_ = clock.Sleep(ctx, w.wait)
	}
}

// watcher adapts functions to the library. It is its own back-off: failed decides.
type watcher struct {
	ctx     context.Context // ends the watch
	address string
	took    func(*Answer)
	failed  func(error) time.Duration
	wait    time.Duration // until the next attempt
}

// OnX509ContextUpdate implements api.X509ContextWatcher.
func (w *watcher) OnX509ContextUpdate(c *api.X509Context) {
	a, err := answerOf(c)
	if err != nil {
		w.OnX509ContextWatchError(err)
		return
	}
	w.took(a)
}

// OnX509ContextWatchError implements api.X509ContextWatcher.
func (w *watcher) OnX509ContextWatchError(err error) {
	if w.ctx.Err() != nil {
		return // the watch ends
	}
	advice := "is the agent of SPIRE running, and is its socket mounted?"
	if status.Code(err) == codes.PermissionDenied {
		advice = "it has no identity for this process: register the workload there"
	}
	w.wait = w.failed(fmt.Errorf("the Workload API at %s: %w: %s", w.address, err, advice))
}

// NewBackoff implements api.BackoffStrategy.
func (w *watcher) NewBackoff() api.Backoff { return w }

// Next implements api.Backoff.
func (w *watcher) Next() time.Duration { return w.wait }

// Reset implements api.Backoff.
func (w *watcher) Reset() {}

func answerOf(c *api.X509Context) (*Answer, error) {
	a := &Answer{}
	for _, s := range c.SVIDs {
		a.Identities = append(a.Identities, Identity{ID: s.ID.String(), TrustDomain: s.ID.TrustDomain().Name(), Chain: s.Certificates, Key: s.PrivateKey})
	}
	if len(a.Identities) == 0 {
		return nil, errors.New("an answer without an identity")
	}
	for _, b := range c.Bundles.Bundles() {
		a.Bundles = append(a.Bundles, bundleOf(b))
	}
	slices.SortFunc(a.Bundles, func(x, y Bundle) int { return cmp.Compare(x.TrustDomain, y.TrustDomain) })
	return a, nil
}

func bundleOf(b *x509bundle.Bundle) Bundle {
	return Bundle{TrustDomain: b.TrustDomain().Name(), Roots: b.X509Authorities()}
}
