package kube

import (
	"context"
	"maps"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// reviews remembers which service accounts may read which Secrets. One goroutine uses it.
type reviews struct {
	ask   func(ctx context.Context, key model.Key, account string) (bool, error)
	every time.Duration // that an answer counts for
	known map[model.Key]map[string]review
}

// review is an answer of the API server.
type review struct {
	allowed bool
	until   time.Time
}

const (
	reviewTimeout = 5 * time.Second
	reviewAgain   = 5 * time.Second // after one that failed
)

func newReviews(ask func(context.Context, model.Key, string) (bool, error), every time.Duration) *reviews {
	if every == 0 {
		every = recheckEvery
	}
	return &reviews{ask: ask, every: every, known: map[model.Key]map[string]review{}}
}

// mayRead tells whether an account of the Secret's namespace may read it. Where the API server
// does not answer, what it said last counts; where it never did, the account may not.
func (r *reviews) mayRead(ctx context.Context, key model.Key, account string) bool {
	old, now := r.known[key][account], time.Now()
	if now.Before(old.until) {
		return old.allowed
	}
	asking, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	allowed, err := r.ask(asking, key, account)
	next := review{allowed, now.Add(r.every)}
	if err != nil {
		next = review{old.allowed, now.Add(min(r.every, reviewAgain))}
	}
	if r.known[key] == nil {
		r.known[key] = map[string]review{}
	}
	r.known[key][account] = next
	return next.allowed
}

func (r *reviews) forget(key model.Key) { delete(r.known, key) }

// keep forgets what was said of accounts that are asked about no more: next would say for ever that they are due.
func (r *reviews) keep(key model.Key, asked func(account string) bool) {
	maps.DeleteFunc(r.known[key], func(account string, _ review) bool { return !asked(account) })
}

// next is when the first answer ceases to count.
func (r *reviews) next(now time.Time) time.Duration {
	wait := r.every
	for _, accounts := range r.known {
		for _, a := range accounts {
			wait = min(wait, a.until.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// accessReviews gives a function that asks the API server whether a service account may get a
// Secret, or list those of its namespace, which is what Istio asks for.
func (c *Client) accessReviews() (func(context.Context, model.Key, string) (bool, error), error) {
	api, err := authorization.NewForConfigAndClient(c.REST())
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, account string, a authorizationv1.ResourceAttributes) (bool, error) {
		user := "system:serviceaccount:" + a.Namespace + ":" + account
		out, err := api.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"},
			ResourceAttributes: &a,
		}}, metav1.CreateOptions{})
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
