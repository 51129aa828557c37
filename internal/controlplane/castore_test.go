package controlplane

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// fakeSecrets are the Secrets of a namespace.
type fakeSecrets struct {
	mu      sync.Mutex // guards the field below
	secrets map[string]*kube.Secret
}

func (f *fakeSecrets) Get(_ context.Context, name string) (*kube.Secret, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.secrets[name], nil
}

func (f *fakeSecrets) Create(ctx context.Context, o *kube.Secret) error { return f.Replace(ctx, o) }

func (f *fakeSecrets) Replace(_ context.Context, o *kube.Secret) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secrets[o.Name] = o
	return nil
}

func (f *fakeSecrets) delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.secrets, name)
}

func openSecrets(t *testing.T, f *fakeSecrets) (*ca.Authority, error) {
	t.Helper()
	return ca.Open(t.Context(), ca.Options{
		Store: &secretStore{secrets: f, namespace: "istio-system"}, RetryOpen: true, Every: time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
}

// complete returns the files of a certificate authority.
func complete(t *testing.T) map[string][]byte {
	t.Helper()
	f := &fakeSecrets{secrets: map[string]*kube.Secret{}}
	_, err := openSecrets(t, f)
	require.NoError(t, err)
	return f.secrets[ownSecret].Data
}

// TestIncompleteCacerts checks that an incomplete Secret of an operator is an error at the start, and not the same as none.
func TestIncompleteCacerts(t *testing.T) {
	files := complete(t)
	with := func(names ...string) map[string][]byte {
		out := map[string][]byte{}
		for _, n := range names {
			out[n] = files[n]
		}
		return out
	}
	misspelled := maps.Clone(files)
	misspelled["ca-key.pme"] = misspelled[ca.KeyFile]
	delete(misspelled, ca.KeyFile)
	for name, tc := range map[string]struct {
		data map[string][]byte
		want string // empty: as without the Secret
	}{
		"no key":           {with(ca.CertFile, ca.RootFile, ca.ChainFile), "ca-key.pem: missing"},
		"a misspelled key": {misspelled, "ca-key.pem: missing"},
		"an empty key":     {map[string][]byte{ca.CertFile: files[ca.CertFile], ca.KeyFile: nil}, "ca-key.pem: missing"},
		"roots alone":      {with(ca.RootFile), "ca-cert.pem: missing"},
		"key alone":        {with(ca.KeyFile), "ca-cert.pem: missing"},
		"tls.crt alone":    {map[string][]byte{"tls.crt": files[ca.CertFile]}, "ca-key.pem: missing"},
		"something else":   {map[string][]byte{"ca.crt": files[ca.RootFile], "notes": []byte("x")}, ""},
		"nothing":          {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeSecrets{secrets: map[string]*kube.Secret{givenSecret: {Name: givenSecret, Data: tc.data}}}
			_, err := openSecrets(t, f)
			if tc.want == "" {
				require.NoError(t, err)
				require.Contains(t, f.secrets, ownSecret)
				return
			}
			require.ErrorContains(t, err, "Secret istio-system/cacerts: "+tc.want)
			require.NotContains(t, f.secrets, ownSecret, "no other authority signs")
		})
	}
}

// TestCacertsBecomesIncomplete checks that a control plane keeps its authority while it runs.
func TestCacertsBecomesIncomplete(t *testing.T) {
	for name, given := range map[string]bool{"its own": false, "the operator's": true} {
		t.Run(name, func(t *testing.T) {
			f := &fakeSecrets{secrets: map[string]*kube.Secret{}}
			if given {
				require.NoError(t, f.Replace(t.Context(), &kube.Secret{Name: givenSecret, Data: complete(t)}))
			}
			a, err := openSecrets(t, f)
			require.NoError(t, err)
			done := make(chan struct{})
			ctx, cancel := context.WithCancel(context.Background())
			go func() { defer close(done); a.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
			before, _ := a.Trust()

			require.NoError(t, f.Replace(t.Context(), &kube.Secret{Name: givenSecret, Data: map[string][]byte{ca.RootFile: complete(t)[ca.RootFile]}}))
			require.Eventually(t, func() bool {
				return strings.Contains(a.State().Problem, "Secret istio-system/cacerts: ca-cert.pem: missing")
			}, time.Minute, time.Millisecond)
			f.delete(givenSecret)
			if given {
				require.Eventually(t, func() bool { return strings.Contains(a.State().Problem, "restore it") }, time.Minute, time.Millisecond)
			} else {
				require.Eventually(t, func() bool { return a.State().Problem == "" }, time.Minute, time.Millisecond)
			}
			after, _ := a.Trust()
			require.Equal(t, before.Roots, after.Roots)
		})
	}
}
