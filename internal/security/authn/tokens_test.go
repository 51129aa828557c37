package authn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	_, err := OpenTokenFile(path, log)
	require.ErrorIs(t, err, os.ErrNotExist)
	write("# who may\n\nsecret-1, shop, web\nsecret-2,bank,teller\n")
	f, err := OpenTokenFile(path, log)
	require.NoError(t, err)
	require.Equal(t, "web@shop", holder(t, f, "secret-1"))
	require.Equal(t, "teller@bank", holder(t, f, "secret-2"))
	for _, unknown := range []string{"", "secret", "secret-11", "secret-1, shop, web"} {
		_, _, err := f.Holder(t.Context(), unknown)
		require.ErrorIs(t, err, ErrUnknown)
	}

	write("secret-1,shop,other\n")
	require.Equal(t, "other@shop", holder(t, f, "secret-1"))
	_, _, err = f.Holder(t.Context(), "secret-2")
	require.ErrorIs(t, err, ErrUnknown, "revoked")

	write("secret-3,shop\n")
	require.Equal(t, "other@shop", holder(t, f, "secret-1"), "the last valid version applies")
	require.Equal(t, "other@shop", holder(t, f, "secret-1"))
	require.Equal(t, 1, strings.Count(said.String(), "the tokens stay unchanged"), "logged once")
	require.NoError(t, os.Remove(path))
	require.Equal(t, "other@shop", holder(t, f, "secret-1"))
	write("secret-3,shop,web\n")
	require.Equal(t, "web@shop", holder(t, f, "secret-3"))
	require.NotContains(t, said.String(), "secret", "tokens are not logged")
}

func holder(t *testing.T, tokens Tokens, token string) string {
	t.Helper()
	ns, account, err := tokens.Holder(t.Context(), token)
	require.NoError(t, err)
	return account + "@" + ns
}

// TestTokenFileIsCached checks that a file of sufficient age is not read for each token.
func TestTokenFileIsCached(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte("secret-1,shop,web"), 0o600))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
	f, err := OpenTokenFile(path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("secret-2,shop,web"), 0o600))
	require.NoError(t, os.Chtimes(path, old, old))
	require.Equal(t, "web@shop", holder(t, f, "secret-1"))
	require.NoError(t, os.Chtimes(path, old, old.Add(time.Second)))
	require.Equal(t, "web@shop", holder(t, f, "secret-2"))
}

func TestLinesOfATokenFile(t *testing.T) {
	for line, says := range map[string]string{
		"secret":                                "line 1: 1 fields: use token,namespace,service-account",
		"secret,a,b,c":                          "4 fields: use",
		",shop,web":                             "the token is empty",
		"a b,shop,web":                          "contains a space",
		"secret,,web":                           "namespace is missing",
		"secret,shop,":                          "service account is missing",
		"secret,shop,a/b":                       `"a/b" is not a valid service account`,
		"# x\nsecret,a,b\n\nsecret,c,d":         "line 4: the same token as in line 2",
		"secret,shop,web\n# ok\nwrong,shop/x,y": "line 3",
	} {
		_, err := parseTokens(line)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "secret")
	}
	out, err := parseTokens("")
	require.NoError(t, err)
	require.Empty(t, out)
}

func TestKubernetesTokens(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	asked, answer, failure := 0, Review{}, error(nil)
	k := NewKubernetesTokens(func(_ context.Context, _, audience string) (Review, error) {
		require.Equal(t, "istio-ca", audience)
		asked++
		return answer, failure
	})
	k.Now = func() time.Time { return now }
	good := Review{Authenticated: true, Audiences: []string{"istio-ca"}, Username: "system:serviceaccount:shop:web"}
	with := func(change func(*Review)) Review { r := good; change(&r); return r }
	token := func(n int) string {
		return jwt(t, map[string]any{"aud": []string{"istio-ca"}, "exp": now.Unix() + 3600, "n": n})
	}
	for name, r := range map[string]struct {
		answer Review
		says   string
	}{
		"unknown":           {with(func(r *Review) { r.Authenticated = false }), "the API server does not know the token"},
		"error":             {with(func(r *Review) { r.Error = "bad signature" }), "the API server answers: bad signature"},
		"other audience":    {with(func(r *Review) { r.Audiences = []string{"api"} }), "the audience of the token is not istio-ca"},
		"no audience":       {with(func(r *Review) { r.Audiences = nil }), "the audience of the token is not istio-ca"},
		"a user":            {with(func(r *Review) { r.Username = "admin" }), `to "admin", which is not a service account`},
		"no account's name": {with(func(r *Review) { r.Username = "system:serviceaccount:shop" }), "not a service account"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, asked = r.answer, 0
			for range 2 {
				_, _, err := k.Holder(t.Context(), token(0))
				var refused *Refusal
				require.ErrorAs(t, err, &refused)
				require.Contains(t, refused.Text, r.says)
			}
			require.Equal(t, 2, asked, "a refusal is not remembered: it may be put right")
		})
	}
	asked, failure = 0, errors.New("away")
	_, _, err := k.Holder(t.Context(), token(0))
	require.ErrorIs(t, err, failure)

	asked, failure, answer = 0, nil, good
	for range 3 {
		require.Equal(t, "web@shop", holder(t, k, token(0)))
	}
	require.Equal(t, 1, asked)
	now = now.Add(rememberFor)
	require.Equal(t, "web@shop", holder(t, k, token(0)))
	require.Equal(t, 2, asked, "it is asked again after a while")
	for n := range rememberMost + 10 {
		require.Equal(t, "web@shop", holder(t, k, token(n+1)))
	}
	require.Len(t, k.known, rememberMost)
	now = now.Add(rememberFor)
	require.Equal(t, "web@shop", holder(t, k, token(-1)))
	require.Len(t, k.known, 1, "what is too old makes room")
}

// TestHopelessTokensAreNotReviewed checks that a token whose claims exclude it causes no request.
func TestHopelessTokensAreNotReviewed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := NewKubernetesTokens(func(context.Context, string, string) (Review, error) {
		require.Fail(t, "it is asked")
		return Review{}, nil
	})
	k.Now = func() time.Time { return now }
	for says, claims := range map[string]map[string]any{
		"the token expired at 2027-01-15T08:00:00Z": {"exp": now.Unix(), "aud": "istio-ca"},
		"the audience of the token is api, x, not":  {"aud": []string{"api", "x"}},
		"the audience of the token is one, not":     {"aud": "one"},
	} {
		_, _, err := k.Holder(t.Context(), jwt(t, claims))
		var refused *Refusal
		require.ErrorAs(t, err, &refused)
		require.Contains(t, refused.Text, says)
	}
	for _, other := range []string{"", "opaque", "a.b.c", "e30.bm8.x", "..", fmt.Sprint("e30.", strings.Repeat("A", 20), ".x")} {
		_, _, err := k.Holder(t.Context(), other)
		require.ErrorIs(t, err, ErrUnknown, other)
	}
}

// TestRememberedUntilExpiry checks that a token is not accepted after its end.
func TestRememberedUntilExpiry(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := NewKubernetesTokens(func(context.Context, string, string) (Review, error) {
		return Review{Authenticated: true, Audiences: []string{"istio-ca"}, Username: "system:serviceaccount:shop:web"}, nil
	})
	k.Now = func() time.Time { return now }
	token := jwt(t, map[string]any{"aud": "istio-ca", "exp": now.Unix() + 5})
	require.Equal(t, "web@shop", holder(t, k, token))
	now = now.Add(5 * time.Second)
	_, _, err := k.Holder(t.Context(), token)
	require.ErrorContains(t, err, "expired")
}

// FuzzClaims decodes claims of arbitrary tokens.
func FuzzClaims(f *testing.F) {
	f.Add("e30.e30.x")
	f.Add("a.eyJhdWQiOlsiaXN0aW8tY2EiXSwiZXhwIjoxZTMwMH0.c")
	f.Fuzz(func(_ *testing.T, token string) {
		if c, ok := readClaims(token); ok {
			_ = c.check(time.Unix(1, 0))
			_ = c.until(time.Unix(1, 0))
		}
	})
}

// TestReviewsAreBounded checks that callers with invented tokens cause only so many reviews at a time.
func TestReviewsAreBounded(t *testing.T) {
	running, end := make(chan struct{}, 2*maxReviews), make(chan struct{})
	k := NewKubernetesTokens(func(context.Context, string, string) (Review, error) {
		running <- struct{}{}
		<-end
		return Review{}, nil
	})
	var callers sync.WaitGroup
	ask := func(ctx context.Context, n int) error {
		_, _, err := k.Holder(ctx, jwt(t, map[string]any{"aud": []string{"istio-ca"}, "exp": time.Now().Unix() + 3600, "n": n}))
		return err
	}
	for n := range maxReviews {
		callers.Go(func() { _ = ask(t.Context(), n) }) // it is refused
		<-running
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, ask(ctx, maxReviews), context.DeadlineExceeded)
	require.Empty(t, running, "it was not asked about")
	close(end)
	callers.Wait()
	var refused *Refusal
	require.ErrorAs(t, ask(t.Context(), maxReviews), &refused)
}
