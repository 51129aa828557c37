package identity

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstRetry = 200 * time.Millisecond
	// maxRetry applies without a certificate: the workload cannot serve yet.
	maxRetry = 10 * time.Second
	// maxRenewRetry applies with a certificate, which has half of its lifetime left.
	maxRenewRetry = time.Minute
	// rootsSpread is the time over which sidecars renew after a change of the mesh's roots. Certificates under the new
	// root arrive soon, but not all at once.
	rootsSpread = 30 * time.Second
)

// backoff is the wait between attempts. It doubles, and a random half of it is subtracted.
type backoff struct{ next time.Duration }

func (b *backoff) wait(most time.Duration) time.Duration {
	b.next = min(max(2*b.next, firstRetry), most)
	return b.next/2 + rand.N(b.next/2+1)
}

// renewal returns how long after now a certificate is renewed: when about the grace part of its lifetime is left, with
// jitter so that workloads which started together do not renew together.
func renewal(now, notAfter time.Time, grace float64) time.Duration {
	left := notAfter.Sub(now)
	if left <= 0 {
		return 0
	}
	wait := time.Duration(float64(left) * (1 - grace))
	either := min(wait, left-wait) / 10
	return wait - either + rand.N(2*either+1)
}

// retryBound returns the longest wait for the next attempt.
func (s *Secrets) retryBound(now time.Time) time.Duration {
	c := s.valid(now)
	if c == nil {
		return maxRetry
	}
	return max(firstRetry, min(maxRenewRetry, c.Leaf.NotAfter.Sub(now)/8))
}

// Run gets and renews the certificate until ctx ends. Call it once.
func (r *Renewer) Run(ctx context.Context) {
	if r.WorkloadAPI != "" {
		r.follow(ctx)
		return
	}
	poll := time.NewTicker(orDefault(r.poll, pollEvery))
	defer poll.Stop()
	renew := time.NewTimer(0)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			renew.Reset(r.renew(ctx))
		case <-poll.C:
			if wait, ok := r.checkFiles(); ok {
				renew.Reset(r.plan(min(wait, r.untilNext())))
			} else if r.late() {
				renew.Reset(0)
			}
			r.writeAgain()
		}
	}
}

// renew makes one attempt, and returns the time until the next.
func (r *Renewer) renew(ctx context.Context) time.Duration {
	s, err := r.obtain(ctx)
	if ctx.Err() != nil {
		return time.Hour // Run ends
	}
	if err != nil {
		return r.failed(err)
	}
	r.succeeded(s)
	wait := r.plan(renewal(time.Now(), s.Leaf().NotAfter, r.GraceRatio))
	r.Log.Info("certificate", "id", s.id(), "until", s.Leaf().NotAfter.Format(time.RFC3339), "from", r.place(), "renewed in", wait.Round(time.Second))
	return wait
}

// succeeded publishes secrets, and forgets earlier failures.
func (r *Renewer) succeeded(s *Secrets) {
	r.backoff = backoff{}
	r.mu.Lock()
	r.problem, r.attempts = nil, 0
	r.mu.Unlock()
	r.set(s)
}

// failed notes an error, and returns the time until the next attempt.
func (r *Renewer) failed(err error) time.Duration {
	s, _ := r.Secrets()
	now := time.Now()
	wait := r.backoff.wait(s.retryBound(now))
	r.mu.Lock()
	r.problem = err
	r.attempts++
	r.mu.Unlock()
	switch c := s.Leaf(); {
	case c == nil:
		r.Log.Warn("no certificate yet", "error", err, "next attempt in", wait.Round(time.Millisecond))
	case now.After(c.NotAfter):
		r.Log.Error("the certificate has expired: peers refuse this workload", "since", c.NotAfter.Format(time.RFC3339), "error", err, "next attempt in", wait.Round(time.Millisecond))
	default:
		r.Log.Warn("certificate not renewed", "good until", c.NotAfter.Format(time.RFC3339), "error", err, "next attempt in", wait.Round(time.Millisecond))
	}
	return r.plan(wait)
}

// plan sets the time of the next attempt by the wall clock, like the expiry of certificates.
func (r *Renewer) plan(wait time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewAt = time.Now().Round(0).Add(wait)
	return wait
}

// late reports whether the time of the next attempt has passed although its timer has not fired. Timers stand still
// while a machine sleeps, and do not follow a changed clock.
func (r *Renewer) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.renewAt.IsZero() && time.Now().After(r.renewAt)
}

// untilNext returns the time until the next attempt. A change of roots does not postpone it.
func (r *Renewer) untilNext() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.renewAt))
}

// checkFiles reads files that may have changed. If ok, the next attempt is after wait.
func (r *Renewer) checkFiles() (wait time.Duration, ok bool) {
	if r.FilesDir != "" {
		return 0, r.filesChanged()
	}
	if r.RootsFile == "" {
		return 0, false
	}
	roots, leftOut, err := readRoots(r.RootsFile)
	r.noteRoots(r.RootsFile, leftOut, err)
	if err != nil {
		return 0, false // an unreadable file may be an incomplete change: the last valid roots stay
	}
	changed := string(roots) != string(r.fileRoots)
	revoked := r.readLists(roots)
	if !changed && !revoked {
		return 0, false
	}
	r.Log.Info("the mesh's roots, or revoked certificates, have changed", "file", r.RootsFile)
	s, _ := r.Secrets()
	r.fileRoots = roots
	r.setRoots(unite(roots, s.answerRoots))
	if !changed {
		return 0, false
	}
	return rand.N(orDefault(r.spread, rootsSpread)), true
}

func orDefault(v, fallback time.Duration) time.Duration {
	if v == 0 {
		return fallback
	}
	return v
}
