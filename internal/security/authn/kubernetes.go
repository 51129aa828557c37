package authn

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Audience is the audience of accepted Kubernetes tokens, as in Istio.
const Audience = "istio-ca"

// Review is an API server's answer about a token.
type Review struct {
	Authenticated bool
	Audiences     []string
	Username      string
	Error         string
}

// Ask requests the review of a token for an audience.
type Ask func(ctx context.Context, token, audience string) (Review, error)

// KubernetesTokens authenticates tokens of service accounts. It asks an API server, and remembers accepted tokens for a
// while, so that many proxies without certificates do not cause a request for each call. Callers who are not authenticated
// yet cause reviews, so their number is bounded.
type KubernetesTokens struct {
	Now func() time.Time // nil: time.Now

	ask   Ask
	slots chan struct{} // holds one value for each running review

	mu    sync.Mutex // guards the field below
	known map[[sha256.Size]byte]reviewed
}

// Bounds of reviews.
const (
	maxReviews    = 64 // at a time; others wait
	reviewTimeout = 20 * time.Second
)

// NewKubernetesTokens returns the verifier of an API server's tokens.
func NewKubernetesTokens(ask Ask) *KubernetesTokens {
	return &KubernetesTokens{ask: ask, slots: make(chan struct{}, maxReviews)}
}

// review asks about a token when it is its turn.
func (k *KubernetesTokens) review(ctx context.Context, token string) (Review, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
		return k.ask(ctx, token, Audience)
	case <-ctx.Done():
		return Review{}, fmt.Errorf("%d other tokens are being checked: %w", maxReviews, ctx.Err())
	}
}

// reviewed is the remembered holder of a token.
type reviewed struct {
	namespace, serviceAccount string
	until                     time.Time
}

// Bounds of the remembered tokens.
const (
	rememberFor  = time.Minute // a revoked token is accepted for that much longer
	rememberMost = 4096
)

// Kind implements Tokens.
func (k *KubernetesTokens) Kind() string { return "Kubernetes token" }

// Holder implements Tokens.
func (k *KubernetesTokens) Holder(ctx context.Context, token string) (namespace, serviceAccount string, err error) {
	claims, ok := readClaims(token)
	if !ok {
		return "", "", ErrUnknown
	}
	now := k.now()
	if err := claims.check(now); err != nil {
		return "", "", err
	}
	sum := sha256.Sum256([]byte(token))
	if r, ok := k.remembered(sum, now); ok {
		return r.namespace, r.serviceAccount, nil
	}
	review, err := k.review(ctx, token)
	if err != nil {
		return "", "", err
	}
	namespace, serviceAccount, err = review.holder()
	if err == nil {
		k.remember(sum, reviewed{namespace, serviceAccount, claims.until(now.Add(rememberFor))}, now)
	}
	return namespace, serviceAccount, err
}

func (k *KubernetesTokens) now() time.Time {
	if k.Now != nil {
		return k.Now()
	}
	return time.Now()
}

func (k *KubernetesTokens) remembered(sum [sha256.Size]byte, now time.Time) (reviewed, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.known[sum]
	return r, ok && now.Before(r.until)
}

func (k *KubernetesTokens) remember(sum [sha256.Size]byte, r reviewed, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[[sha256.Size]byte]reviewed{}
	}
	if len(k.known) >= rememberMost {
		for s, old := range k.known {
			if !now.Before(old.until) {
				delete(k.known, s)
			}
		}
	}
	if len(k.known) < rememberMost {
		k.known[sum] = r
	}
}

// holder returns the holder of an accepted token.
func (r *Review) holder() (namespace, serviceAccount string, err error) {
	const prefix = "system:serviceaccount:"
	switch {
	case r.Error != "":
		return "", "", refuse("the API server answers: %s", r.Error)
	case !r.Authenticated:
		return "", "", refuse("the API server does not know the token")
	case !slices.Contains(r.Audiences, Audience):
		return "", "", refuse("the audience of the token is not %s", Audience)
	}
	rest, ok := strings.CutPrefix(r.Username, prefix)
	namespace, serviceAccount, both := strings.Cut(rest, ":")
	if !ok || !both {
		return "", "", refuse("the token belongs to %q, which is not a service account", r.Username)
	}
	return namespace, serviceAccount, nil
}

// claims are the unverified claims of a token. They only save requests that would fail, and explain the failure.
type claims struct {
	audiences []string
	expires   int64 // seconds since 1970; 0: unknown
}

// readClaims decodes a JSON Web Token; false: the text is not one.
func readClaims(token string) (claims, bool) {
	p := strings.Split(token, ".")
	if len(p) != 3 {
		return claims{}, false
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(p[1], "="))
	if err != nil {
		return claims{}, false
	}
	var said struct {
		Audience json.RawMessage `json:"aud"`
		Expires  float64         `json:"exp"`
	}
	if json.Unmarshal(b, &said) != nil {
		return claims{}, false
	}
	c := claims{expires: int64(said.Expires)}
	var one string
	if json.Unmarshal(said.Audience, &c.audiences) != nil && json.Unmarshal(said.Audience, &one) == nil {
		c.audiences = []string{one}
	}
	return c, true
}

func (c *claims) check(now time.Time) error {
	switch {
	case c.expires != 0 && now.Unix() >= c.expires:
		return refuse("the token expired at %s", time.Unix(c.expires, 0).UTC().Format(time.RFC3339))
	case len(c.audiences) > 0 && !slices.Contains(c.audiences, Audience):
		return refuse("the audience of the token is %s, not %s: mount one with serviceAccountToken.audience %s",
			strings.Join(c.audiences, ", "), Audience, Audience)
	}
	return nil
}

// until returns t, or the end of the token if that is earlier.
func (c *claims) until(t time.Time) time.Time {
	if end := time.Unix(c.expires, 0); c.expires != 0 && end.Before(t) {
		return end
	}
	return t
}
