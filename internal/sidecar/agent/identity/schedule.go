package identity

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstRetry = 200 * time.Millisecond
	// maxRetry without a certificate: the workload cannot serve yet.
	maxRetry = 10 * time.Second
	// maxRenewRetry with a certificate, which has half of its life left.
	maxRenewRetry = time.Minute
	// rootsSpread is in what time sidecars renew when the mesh's roots have changed: what was
	// signed under the new root then comes soon, and not from all at once.
	rootsSpread = 30 * time.Second
)

// backoff is the wait between attempts: it doubles, and a random half of it is left out.
type backoff struct{ next time.Duration }

func (b *backoff) wait(most time.Duration) time.Duration {
	b.next = min(max(2*b.next, firstRetry), most)
	return b.next/2 + rand.N(b.next/2+1)
}

// renewal is how long after now a certificate is renewed: when about the grace part of its
// life is left, at a random point, so that workloads that began together do not renew together.
func renewal(now, notAfter time.Time, grace float64) time.Duration {
	left := notAfter.Sub(now)
	if left <= 0 {
		return 0
	}
	wait := time.Duration(float64(left) * (1 - grace))
	either := min(wait, left-wait) / 10
	return wait - either + rand.N(2*either+1)
}

// retryBound is the longest wait for the next attempt.
func (s *Secrets) retryBound(now time.Time) time.Duration {
	c := s.valid(now)
	if c == nil {
		return maxRetry
	}
	return max(firstRetry, min(maxRenewRetry, c.Leaf.NotAfter.Sub(now)/8))
}

// Run gets and renews the certificate until ctx ends. It is to be called once.
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
			if wait, ok := k.look(); ok {
				renew.Reset(k.plan(min(wait, k.untilNext())))
			} else if k.late() {
				renew.Reset(0)
			}
			k.writeAgain()
		}
	}
}

// renew makes one attempt, and returns the time to the next.
func (k *Renewer) renew(ctx context.Context) time.Duration {
	s, err := k.obtain(ctx)
	if ctx.Err() != nil {
		return time.Hour // nobody waits for it
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

// plan notes the next attempt, by the clock on the wall, which certificates go by.
func (k *Renewer) plan(wait time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewAt = time.Now().Round(0).Add(wait)
	return wait
}

// late tells whether it is past the time of the next attempt, though its timer has not ended: timers stand still
// while a machine sleeps, and do not hear of a clock that is set.
func (k *Renewer) late() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.renewAt.IsZero() && time.Now().After(k.renewAt)
}

// untilNext is the time to the next attempt as planned: no change of roots puts it off.
func (k *Renewer) untilNext() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(0, time.Until(k.renewAt))
}

// look reads files that may have changed; ok: there is to be an attempt after wait.
func (k *Renewer) look() (wait time.Duration, ok bool) {
	if k.FilesDir != "" {
		return 0, k.filesChanged()
	}
	if k.RootsFile == "" {
		return 0, false
	}
	roots, err := readRoots(k.RootsFile)
	if err != nil || string(roots) == string(k.fileRoots) {
		return 0, false // an unreadable file may be half a change: the last good roots stay
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
