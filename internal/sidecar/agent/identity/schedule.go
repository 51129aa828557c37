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
func (k *Renewer) Run(ctx context.Context) {
	poll := time.NewTicker(orDefault(k.poll, pollEvery))
	defer poll.Stop()
	renew := time.NewTimer(0)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			renew.Reset(k.renew(ctx))
		case <-poll.C:
			if wait, ok := k.checkFiles(); ok {
				renew.Reset(k.plan(min(wait, k.untilNext())))
			} else if k.late() {
				renew.Reset(0)
			}
			k.writeAgain()
		}
	}
}

// renew makes one attempt, and returns the time until the next.
func (k *Renewer) renew(ctx context.Context) time.Duration {
	s, err := k.obtain(ctx)
	if ctx.Err() != nil {
		return time.Hour // Run ends
	}
	if err != nil {
		return k.failed(err)
	}
	k.backoff = backoff{}
	k.mu.Lock()
	k.problem, k.attempts = nil, 0
	k.mu.Unlock()
	k.set(s)
	wait := k.plan(renewal(time.Now(), s.Leaf().NotAfter, k.GraceRatio))
	k.Log.Info("certificate", "id", s.id(), "until", s.Leaf().NotAfter.Format(time.RFC3339), "from", k.place(), "renewed in", wait.Round(time.Second))
	return wait
}

func (k *Renewer) failed(err error) time.Duration {
	s, _ := k.Secrets()
	now := time.Now()
	wait := k.backoff.wait(s.retryBound(now))
	k.mu.Lock()
	k.problem = err
	k.attempts++
	k.mu.Unlock()
	switch c := s.Leaf(); {
	case c == nil:
		k.Log.Warn("no certificate yet", "error", err, "next attempt in", wait.Round(time.Millisecond))
	case now.After(c.NotAfter):
		k.Log.Error("the certificate has expired: peers refuse this workload", "since", c.NotAfter.Format(time.RFC3339), "error", err, "next attempt in", wait.Round(time.Millisecond))
	default:
		k.Log.Warn("certificate not renewed", "good until", c.NotAfter.Format(time.RFC3339), "error", err, "next attempt in", wait.Round(time.Millisecond))
	}
	return k.plan(wait)
}

// plan sets the time of the next attempt by the wall clock, like the expiry of certificates.
func (k *Renewer) plan(wait time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewAt = time.Now().Round(0).Add(wait)
	return wait
}

// late reports whether the time of the next attempt has passed although its timer has not fired. Timers stand still
// while a machine sleeps, and do not follow a changed clock.
func (k *Renewer) late() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.renewAt.IsZero() && time.Now().After(k.renewAt)
}

// untilNext returns the time until the next attempt. A change of roots does not postpone it.
func (k *Renewer) untilNext() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(0, time.Until(k.renewAt))
}

// checkFiles reads files that may have changed. If ok, the next attempt is after wait.
func (k *Renewer) checkFiles() (wait time.Duration, ok bool) {
	if k.FilesDir != "" {
		return 0, k.filesChanged()
	}
	if k.RootsFile == "" {
		return 0, false
	}
	roots, err := readRoots(k.RootsFile)
	if err != nil || string(roots) == string(k.fileRoots) {
		return 0, false // an unreadable file may be an incomplete change: the last valid roots stay
	}
	k.Log.Info("the mesh's roots have changed", "file", k.RootsFile)
	s, _ := k.Secrets()
	k.fileRoots = roots
	k.setRoots(unite(roots, s.answerRoots))
	return rand.N(orDefault(k.spread, rootsSpread)), true
}

func orDefault(v, fallback time.Duration) time.Duration {
	if v == 0 {
		return fallback
	}
	return v
}
