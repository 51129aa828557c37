package kube

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// reviews caches which service accounts may read which Secrets. One goroutine uses it; several call ask.
type reviews struct {
	ask   func(ctx context.Context, key model.Key, account string) (bool, error)
	every time.Duration // lifetime of an answer
	known map[model.Key]map[string]review
	more  bool // the last renewal has left questions for the next one
}

// review is an answer of the API server.
type review struct {
	allowed bool
	until   time.Time
}

const (
	reviewTimeout = 5 * time.Second
	reviewAgain   = 5 * time.Second // after a failure
	maxReviews    = 8               // concurrent requests
	renewFor      = time.Second     // how long one renewal begins requests
)

func newReviews(ask func(context.Context, model.Key, string) (bool, error), every time.Duration) *reviews {
	if every == 0 {
		every = recheckEvery
	}
	return &reviews{ask: ask, every: every, known: map[model.Key]map[string]review{}}
}

// question asks whether an account of a Secret's namespace may read it.
type question struct {
	key     model.Key
	account string
}

// renew asks for missing and old answers, some at a time: first for missing ones, then for the oldest. It leaves the rest to
// the next renewal if this one takes long, so that a changed Secret does not wait for the reviews of all others. While the API
// server does not answer, its last answer applies and is requested again soon; without one the account may not read.
func (r *reviews) renew(ctx context.Context, questions []question) {
	begun := time.Now()
	until := func(q question) time.Time { return r.known[q.key][q.account].until }
	questions = slices.DeleteFunc(questions, func(q question) bool { return begun.Before(until(q)) })
	slices.SortStableFunc(questions, func(a, b question) int { return until(a).Compare(until(b)) })
	answers := make([]review, len(questions))
	next := make(chan int)
	var askers sync.WaitGroup
	for range min(maxReviews, len(questions)) {
		askers.Go(func() {
			for i := range next {
				answers[i] = r.answer(ctx, questions[i])
			}
		})
	}
	asked := 0
	for asked < len(questions) && time.Since(begun) < renewFor {
		next <- asked
		asked++
	}
	close(next)
	askers.Wait()
	r.more = asked < len(questions)
	for i, q := range questions[:asked] {
		if r.known[q.key] == nil {
			r.known[q.key] = map[string]review{}
		}
		r.known[q.key][q.account] = answers[i]
	}
}

// answer sends a request. It changes no state, because several run at the same time.
func (r *reviews) answer(ctx context.Context, q question) review {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	now := time.Now()
	allowed, err := r.ask(ctx, q.key, q.account)
	if err != nil {
		return review{r.known[q.key][q.account].allowed, now.Add(min(r.every, reviewAgain))}
	}
	return review{allowed, now.Add(r.every)}
}

// mayRead returns the last answer.
func (r *reviews) mayRead(key model.Key, account string) bool { return r.known[key][account].allowed }

// answered reports whether there is an answer.
func (r *reviews) answered(key model.Key, account string) bool {
	_, ok := r.known[key][account]
	return ok
}

func (r *reviews) forget(key model.Key) { delete(r.known, key) }

// keep drops the answers for accounts that are not asked about any more, which would always be due.
func (r *reviews) keep(key model.Key, asked func(account string) bool) {
	maps.DeleteFunc(r.known[key], func(account string, _ review) bool { return !asked(account) })
}

// next returns the time until the first answer is due.
func (r *reviews) next(now time.Time) time.Duration {
	wait := r.every
	if r.more {
		wait = 0
	}
	for _, accounts := range r.known {
		for _, a := range accounts {
			wait = min(wait, a.until.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// accessReviews returns a function that asks the API server whether a service account may get a Secret, or list those
// of its namespace, as Istio does. Callers limit its rate.
func (c *Client) accessReviews() (func(context.Context, model.Key, string) (bool, error), error) {
	api, err := NewAPI[authorizationv1.SubjectAccessReview](c.unlimited(),
		authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"), authorizationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, account string, a authorizationv1.ResourceAttributes) (bool, error) {
		user := "system:serviceaccount:" + a.Namespace + ":" + account
		out, err := api.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"},
			ResourceAttributes: &a,
		}})
		if err != nil {
			return false, err
		}
		return out.Status.Allowed, nil
	}
	return func(ctx context.Context, key model.Key, account string) (bool, error) {
		a := authorizationv1.ResourceAttributes{Namespace: key.Namespace, Verb: "get", Version: "v1", Resource: "secrets", Name: key.Name}
		if allowed, err := ask(ctx, account, a); err != nil || allowed {
			return allowed, err
		}
		a.Verb, a.Name = "list", ""
		return ask(ctx, account, a)
	}, nil
}
