package jwks

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/safedial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	keysA = `{"keys":[{"k":"YQ","kty":"oct"}]}`
	keysB = `{"keys":[{"k":"Yg","kty":"oct"}]}`
)

// issuer serves keys, or another body.
type issuer struct {
	*httptest.Server
	body  atomic.Value // string; empty: 503
	asked atomic.Int64
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.body.Store(keysA)
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		if text := i.body.Load().(string); text != "" {
			_, _ = w.Write([]byte(text))
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, i.URL, i.URL+"/keys")
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// bench is a Cache with a store.
type bench struct {
	*Cache
	t      *testing.T
	intake *store.Intake
	store  *store.Store
	mu     sync.Mutex // guards the field below
}

func start(t *testing.T, refresh time.Duration, rules ...model.JWTRule) *bench {
	t.Helper()
	b := &bench{t: t, intake: store.NewIntake(), store: store.New()}
	b.Cache = New(b.intake, b.store.Snapshot, safedial.Dialer{AllowLoopback: true}, slog.New(slog.DiscardHandler))
	b.Refresh = refresh
	b.set(rules...)
	ctx, cancel := context.WithCancel(context.Background())
	loaded := make(chan struct{})
	close(loaded)
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx, loaded) })
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-b.intake.Ready():
				b.apply(b.intake.Take()...)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

func (b *bench) apply(events ...store.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, changes := b.store.Apply(events)
	b.Applied(changes)
}

func (b *bench) set(rules ...model.JWTRule) {
	m := model.Meta{Key: model.Key{Kind: model.KindRequestAuthentication, Namespace: "shop", Name: "a"}, ResourceVersion: fmt.Sprint(time.Now().UnixNano())}
	b.apply(store.Event{Key: m.Key, Object: &model.RequestAuthentication{Meta: m, Rules: rules}})
}

func (b *bench) keySet(name string) *model.KeySet {
	k, _ := b.store.Snapshot().Get(model.Key{Kind: model.KindKeySet, Name: name}).(*model.KeySet)
	return k
}

func (b *bench) await(name string, want func(*model.KeySet) bool) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return want(b.keySet(name)) }, time.Minute, time.Millisecond)
}

func has(keys string) func(*model.KeySet) bool {
	return func(k *model.KeySet) bool { return k != nil && k.Keys == keys && k.Problem == "" }
}

func TestKeysAreFetchedAndRotated(t *testing.T) {
	i := newIssuer(t)
	uri := i.URL + "/keys"
	b := start(t, 20*time.Millisecond, model.JWTRule{Issuer: "x", KeysURI: uri})
	require.NoError(t, b.Wait(t.Context()))
	require.Equal(t, keysA, b.keySet(uri).Keys, "the first keys are present when proxies connect")

	i.body.Store(keysB)
	b.await(uri, has(keysB))

	i.body.Store("")
	b.await(uri, func(k *model.KeySet) bool { return k.Keys == keysB && strings.Contains(k.Problem, "503") })
	require.Len(t, b.Problems(), 1)

	i.body.Store(keysA)
	b.await(uri, has(keysA))
	require.Empty(t, b.Problems())

	b.set(model.JWTRule{Keys: keysA})
	b.await(uri, func(k *model.KeySet) bool { return k == nil })
}

// TestKeysThatCannotBeReadAreLeftOut checks that an issuer's other keys rotate.
func TestKeysThatCannotBeReadAreLeftOut(t *testing.T) {
	i := newIssuer(t)
	uri := i.URL + "/keys"
	b := start(t, 20*time.Millisecond, model.JWTRule{Issuer: "x", KeysURI: uri})
	b.await(uri, has(keysA))

	i.body.Store(`{"keys":[{"kty":"RSA","e":"AQAB"},{"k":"Yg","kty":"oct"}]}`)
	b.await(uri, func(k *model.KeySet) bool { return has(keysB)(k) && k.LeftOut == "keys[0] has no n or no e" })

	i.body.Store(`{"keys":[{"kty":"RSA","e":"AQAB"}]}`)
	b.await(uri, func(k *model.KeySet) bool {
		return k.Keys == keysB && strings.Contains(k.Problem, "no key can check tokens")
	})

	i.body.Store(keysA)
	b.await(uri, func(k *model.KeySet) bool { return has(keysA)(k) && k.LeftOut == "" })
}

func TestDiscovery(t *testing.T) {
	i := newIssuer(t)
	r := model.JWTRule{Issuer: i.URL + "/"}
	b := start(t, 0, r)
	b.await(r.KeySource(), has(keysA))
}

func TestWhatIsNoKeySetIsRefused(t *testing.T) {
	i := newIssuer(t)
	uri := i.URL + "/keys"
	for body, want := range map[string]string{
		"<html>":                        "not a JSON Web Key Set",
		`{"keys": []}`:                  "no key",
		strings.Repeat(" ", maxBody+10): "more than",
		"":                              "503",
	} {
		i.body.Store(body)
		b := start(t, 0, model.JWTRule{KeysURI: uri})
		require.NoError(t, b.Wait(t.Context()), "proxies may connect without keys")
		k := b.keySet(uri)
		require.Empty(t, k.Keys)
		require.Contains(t, k.Problem, want)
	}
}

// TestDoesNotFetchFromCloudMetadata checks rules and redirects with addresses at which clouds serve credentials.
func TestDoesNotFetchFromCloudMetadata(t *testing.T) {
	s := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest/", http.StatusFound))
	t.Cleanup(s.Close)
	for _, uri := range []string{"http://169.254.169.254/latest/", s.URL} {
		b := start(t, 0, model.JWTRule{KeysURI: uri})
		b.await(uri, func(k *model.KeySet) bool { return k != nil && k.Problem != "" })
		require.Contains(t, b.keySet(uri).Problem, "169.254.169.254: address not allowed")
	}
}

func TestDiscoveryThatLeadsNowhere(t *testing.T) {
	for issuer, want := range map[string]string{"alice@example.com": "not an http", "http://127.0.0.1:1": "refused"} {
		r := model.JWTRule{Issuer: issuer}
		b := start(t, 0, r)
		b.await(r.KeySource(), func(k *model.KeySet) bool { return k != nil && strings.Contains(k.Problem, want) })
	}
}

// TestOneSourceIsFetchedOnce checks that rules share a source.
func TestOneSourceIsFetchedOnce(t *testing.T) {
	i := newIssuer(t)
	uri := i.URL + "/keys"
	b := start(t, 0, model.JWTRule{Issuer: "x", KeysURI: uri}, model.JWTRule{Issuer: "y", KeysURI: uri})
	b.await(uri, has(keysA))
	b.set(model.JWTRule{Issuer: "z", KeysURI: uri})
	require.NoError(t, b.Wait(t.Context()))
	require.EqualValues(t, 1, i.asked.Load())
}

// TestErrorsQuoteNoAnswer checks that an author of rules cannot read the answers of servers that only this machine
// reaches.
func TestErrorsQuoteNoAnswer(t *testing.T) {
	for _, body := range []string{"secret", `{"keys": "secret"}`, `{"keys": [{"kty": "secret"}]}`, `{"keys": [{"kty": "RSA", "n": "secret"}]}`, `{"jwks_uri": "secret"}`} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		t.Cleanup(s.Close)
		for _, r := range []model.JWTRule{{KeysURI: s.URL}, {Issuer: s.URL}} {
			b := start(t, 0, r)
			b.await(r.KeySource(), func(k *model.KeySet) bool { return k != nil && k.Problem != "" })
			require.NotContains(t, b.keySet(r.KeySource()).Problem, "secret")
			require.NotContains(t, b.keySet(r.KeySource()).Problem, "'s'")
		}
	}
}
