package authn

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// Audience is what tokens of Kubernetes must be made for: Istio's.
const Audience = "istio-ca"

// Review is what an API server says of a token.
type Review struct {
	Authenticated bool
	Audiences     []string
	Username      string
	Error         string
}

// KubernetesTokens are those of service accounts. An API server is asked about each; what it
// says of a good one is remembered for a while, so that whoever lost their certificates
// together does not have it asked for each call.
type KubernetesTokens struct {
	// Ask has a token reviewed for an audience.
	Ask func(ctx context.Context, token, audience string) (Review, error)
	Now func() time.Time // nil: time.Now

	mu    sync.Mutex // guards known
	known map[[sha256.Size]byte]reviewed
}

// reviewed is whose a token was, a moment ago.
type reviewed struct {
	namespace, serviceAccount string
	until                     time.Time
}

// Bounds of what is remembered.
const (
	rememberFor  = time.Minute // a token that is withdrawn is accepted for so much longer
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
	review, err := k.Ask(ctx, token, Audience)
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

// holder is whose token it is.
func (r *Review) holder() (namespace, serviceAccount string, err error) {
	const prefix = "system:serviceaccount:"
	switch {
	case r.Error != "":
		return "", "", refuse("the API server says: %s", r.Error)
	case !r.Authenticated:
		return "", "", refuse("the API server does not know it")
	case !slices.Contains(r.Audiences, Audience):
		return "", "", refuse("it is not for the audience %s", Audience)
	}
	rest, ok := strings.CutPrefix(r.Username, prefix)
	namespace, serviceAccount, both := strings.Cut(rest, ":")
	if !ok || !both {
		return "", "", refuse("it belongs to %q, which is not a service account", r.Username)
	}
	return namespace, serviceAccount, nil
}

// claims is what a token says of itself. Nothing is believed of it: it only spares questions
// whose answer is no, and explains that.
type claims struct {
	audiences []string
	expires   int64 // seconds since 1970; 0: it does not say
}

// readClaims reads a JSON Web Token; false: it is none.
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
		return refuse("it has expired at %s", time.Unix(c.expires, 0).UTC().Format(time.RFC3339))
	case len(c.audiences) > 0 && !slices.Contains(c.audiences, Audience):
		return refuse("it is for the audience %s, not for %s: mount one with serviceAccountToken.audience %s",
			strings.Join(c.audiences, ", "), Audience, Audience)
	}
	return nil
}

// until is a time, or the token's end where that is earlier.
func (c *claims) until(t time.Time) time.Time {
	if end := time.Unix(c.expires, 0); c.expires != 0 && end.Before(t) {
		return end
	}
	return t
}
