package identity

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/security/certpem"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/test/logtext"
)

const (
	patience = time.Minute
	shopWeb  = "spiffe://mesh.test/ns/shop/sa/web"
)

func TestFirstCertificate(t *testing.T) {
	t.Setenv(ClusterVariable, "")
	r := root(t, "one")
	server := authority(t, r)
	o := options(t, server, r)
	o.OutputDir = filepath.Join(t.TempDir(), "out")
	log := &logtext.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	renewer := run(t, o)
	s := await(t, renewer, "a certificate", issued)
	require.NoError(t, renewer.Problem())
	require.Equal(t, shopWeb, renewer.State().ID)
	require.IsType(t, &ecdsa.PublicKey{}, s.Leaf().PublicKey)
	require.Equal(t, string(r.PEM()), string(s.Roots), "once, although the file and the CA have it")

	call := server.Calls()[0]
	require.Equal(t, "Bearer web-token", call.Token)
	require.Equal(t, shopWeb, call.CSR.URIs[0].String())
	require.Equal(t, DefaultTTL, call.TTL)

	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(o.OutputDir, rootFile)); return err == nil }, patience, time.Millisecond)
	for name, want := range map[string][]byte{chainFile: s.Chain, keyFile: s.Key, rootFile: s.Roots} {
		content, err := os.ReadFile(filepath.Join(o.OutputDir, name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(content), name)
		info, err := os.Stat(filepath.Join(o.OutputDir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "id="+shopWeb) }, patience, time.Millisecond)
	require.NotContains(t, log.String(), "PRIVATE")
	require.NotContains(t, log.String(), "web-token")
	require.Equal(t, 1.0, testutil.ToFloat64(o.Metrics.requests.WithLabelValues("csr")))
}

// TestFilesInACluster checks that other containers of the Pod, with users of their own, can read the files.
func TestFilesInACluster(t *testing.T) {
	t.Setenv(ClusterVariable, "10.0.0.1")
	r := root(t, "one")
	o := options(t, authority(t, r), r)
	o.OutputDir = filepath.Join(t.TempDir(), "out")
	run(t, o)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(o.OutputDir, rootFile)); return err == nil }, patience, time.Millisecond)
	for _, name := range []string{chainFile, keyFile, rootFile} {
		info, err := os.Stat(filepath.Join(o.OutputDir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), name)
	}
}

func TestRSAKeys(t *testing.T) {
	r := root(t, "one")
	o := options(t, authority(t, r), r)
	o.RSABits = 2048
	s := await(t, run(t, o), "a certificate", issued)
	require.Equal(t, 2048, s.Leaf().PublicKey.(*rsa.PublicKey).Size()*8)
}

// withLife runs try with longer and longer lifetimes until it succeeds. On a busy machine certificates of a few seconds
// expire before their renewal.
func withLife(t *testing.T, life time.Duration, try func(t *testing.T, server *catest.Server, o Options) bool) {
	t.Helper()
	for ; life < patience; life *= 2 {
		r := root(t, "one")
		server := authority(t, r)
		server.Change(func(s *catest.Settings) { s.Life = life })
		if try(t, server, options(t, server, r)) {
			return
		}
	}
	require.Fail(t, "certificates expire before they are renewed")
}

// over reports whether a certificate has expired.
func over(s *Secrets) bool { return time.Now().After(s.Leaf().NotAfter) }

// TestRenewal renews certificates of a few seconds. Each has a key of its own, and none expires.
func TestRenewal(t *testing.T) {
	withLife(t, 4*time.Second, func(t *testing.T, _ *catest.Server, o Options) bool {
		renewer := run(t, o)
		first := await(t, renewer, "a certificate", issued)
		second := await(t, renewer, "another", func(s *Secrets) bool { return s.Leaf().SerialNumber.Cmp(first.Leaf().SerialNumber) != 0 })
		inTime := !over(first)
		require.NotEqual(t, first.Key, second.Key)
		return inTime
	})
}

// TestRenewalByTheClock checks that a machine renews when it wakes up after hours, although timers stand still during
// sleep.
func TestRenewalByTheClock(t *testing.T) {
	r := root(t, "one")
	renewer := run(t, options(t, authority(t, r), r))
	first := await(t, renewer, "a certificate", issued)
	require.Eventually(t, func() bool { return time.Until(renewer.State().RenewAt) > 20*time.Minute }, patience, time.Millisecond)
	at := renewer.State().RenewAt
	require.Equal(t, at.Round(0), at, "wall clock, not monotonic time")
	renewer.mu.Lock()
	renewer.renewAt = at.Add(-time.Hour)
	renewer.mu.Unlock()
	await(t, renewer, "another", func(s *Secrets) bool { return s.Leaf().SerialNumber.Cmp(first.Leaf().SerialNumber) != 0 })
}

// TestFilesAreWrittenLater checks that files follow once the disk accepts them.
func TestFilesAreWrittenLater(t *testing.T) {
	r := root(t, "one")
	o := options(t, authority(t, r), r)
	o.OutputDir = filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(o.OutputDir, nil, 0o600)) // a file where a folder is needed
	renewer := run(t, o)
	s := await(t, renewer, "a certificate", issued)
	require.Eventually(t, func() bool { return testutil.ToFloat64(o.Metrics.files) == 1 }, patience, time.Millisecond)
	require.NoError(t, os.Remove(o.OutputDir))
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(o.OutputDir, chainFile))
		return string(text) == string(s.Chain)
	}, patience, time.Millisecond)
}

// TestRenewalWithoutToken checks that the certificate itself authenticates a renewal, and that a later token is used.
func TestRenewalWithoutToken(t *testing.T) {
	withLife(t, 2*time.Second, func(t *testing.T, server *catest.Server, o Options) bool {
		renewer := run(t, o)
		await(t, renewer, "a certificate", issued)
		require.NoError(t, os.Remove(o.TokenFile))
		called := func(token, peer string) bool {
			c := server.Calls()
			last := c[len(c)-1]
			return last.Token == token && last.Peer == peer
		}
		late := false
		require.Eventually(t, func() bool {
			s, _ := renewer.Secrets()
			late = over(s)
			return late || called("", shopWeb)
		}, patience, time.Millisecond)
		if late {
			return false
		}
		write(t, o.TokenFile, "web-token")
		require.Eventually(t, func() bool { return called("Bearer web-token", "") }, patience, time.Millisecond)
		return true
	})
}

// TestRenewalWithARefusedToken checks that the certificate authenticates a renewal instead, unless it has expired.
func TestRenewalWithARefusedToken(t *testing.T) {
	withLife(t, 3*time.Second, func(t *testing.T, server *catest.Server, o Options) bool {
		renewer := run(t, o)
		first := await(t, renewer, "a certificate", issued)
		write(t, o.TokenFile, "ended")
		another := func(s *Secrets) bool { return s.Leaf().SerialNumber.Cmp(first.Leaf().SerialNumber) != 0 }
		late := false
		require.Eventually(t, func() bool {
			s, _ := renewer.Secrets()
			late = !another(s) && over(s)
			return late || another(s)
		}, patience, time.Millisecond)
		if late {
			return false
		}
		calls := server.Calls()
		at := slices.IndexFunc(calls, func(c catest.Call) bool { return c.Token == "" && c.Peer == shopWeb })
		require.Positive(t, at)
		require.Equal(t, "Bearer ended", calls[at-1].Token, "the token is tried first")
		return true
	})
	for _, code := range []codes.Code{codes.Unauthenticated, codes.Unavailable, codes.DeadlineExceeded} {
		require.True(t, undecided(&refusal{code: code}))
	}
	require.False(t, undecided(&refusal{code: codes.PermissionDenied}))
}

// TestProblems checks that errors contain advice, and end when the cause is corrected.
func TestProblems(t *testing.T) {
	r, foreign := root(t, "one"), root(t, "foreign")
	for _, tc := range []struct {
		name  string
		wrong func(t *testing.T, o *Options, s *catest.Server)
		want  []string
	}{
		{"unknown token", func(t *testing.T, o *Options, _ *catest.Server) { write(t, o.TokenFile, "other") },
			[]string{"Unauthenticated", "was not accepted", "--token-file"}},
		{"no token", func(t *testing.T, o *Options, _ *catest.Server) { require.NoError(t, os.Remove(o.TokenFile)) },
			[]string{"no such file", "--token-file"}},
		{"empty token", func(t *testing.T, o *Options, _ *catest.Server) { write(t, o.TokenFile, " \n") }, []string{"token: empty"}},
		{"no token at all", func(t *testing.T, o *Options, _ *catest.Server) { write(t, o.TokenFile, "a b") }, []string{"invalid characters"}},
		{"huge token", func(t *testing.T, o *Options, _ *catest.Server) {
			write(t, o.TokenFile, strings.Repeat("x", maxToken+1))
		}, []string{"too large"}},
		{"other namespace", func(_ *testing.T, _ *Options, s *catest.Server) {
			s.Change(func(c *catest.Settings) {
				c.IDs = map[string]string{"Bearer web-token": "spiffe://mesh.test/ns/other/sa/web"}
			})
		}, []string{"ns/other/sa/web", "namespace shop", "--namespace"}},
		{"another mesh's roots", func(t *testing.T, o *Options, _ *catest.Server) { write(t, o.RootsFile, string(foreign.PEM())) },
			[]string{"x509", "--xds-root-cert"}},
		{"another server's name", func(_ *testing.T, o *Options, _ *catest.Server) { o.ServerNames = []string{"other.test", "127.0.0.9"} },
			[]string{"none of the names other.test, 127.0.0.9", "--xds-server-name"}},
		{"no server", func(_ *testing.T, o *Options, _ *catest.Server) { o.Address = "127.0.0.1:1" }, []string{"127.0.0.1:1", "is the CA running there"}},
		{"no CA", func(_ *testing.T, _ *Options, s *catest.Server) {
			s.Change(func(c *catest.Settings) { c.Err = status.Error(codes.Unimplemented, "unknown service") })
		}, []string{"issues no certificates", "--ca-address"}},
		{"too long a life", func(_ *testing.T, _ *Options, s *catest.Server) {
			s.Change(func(c *catest.Settings) { c.Err = status.Error(codes.InvalidArgument, "too long") })
		}, []string{"too long", "--cert-ttl"}},
		{"forbidden", func(_ *testing.T, _ *Options, s *catest.Server) {
			s.Change(func(c *catest.Settings) { c.Err = status.Error(codes.PermissionDenied, "no") })
		}, []string{"may not have a certificate of namespace shop, service account web"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := authority(t, r)
			o := options(t, server, r)
			tc.wrong(t, &o, server)
			renewer := run(t, o)
			require.Eventually(t, func() bool { return renewer.State().Problem != "" }, patience, time.Millisecond)
			for _, w := range tc.want {
				require.ErrorContains(t, renewer.Problem(), w)
			}
			if o.Address != server.Address || o.ServerNames[0] != catest.ControlPlaneName {
				return
			}
			write(t, o.TokenFile, "web-token")
			write(t, o.RootsFile, string(r.PEM()))
			server.Change(func(c *catest.Settings) { c.Err, c.IDs = nil, map[string]string{"Bearer web-token": shopWeb} })
			await(t, renewer, "the certificate after the corrections", issued)
			require.NoError(t, renewer.Problem())
		})
	}
}

// TestInvalidAnswers checks that an invalid answer of the CA is not used.
func TestInvalidAnswers(t *testing.T) {
	r, foreign := root(t, "one"), root(t, "foreign")
	key, err := newKey(0)
	require.NoError(t, err)
	other, err := newKey(0)
	require.NoError(t, err)
	sign := func(by *catest.Root, public any, life time.Duration, id string) string {
		cert, err := by.Sign(public, life, []string{id}, nil)
		require.NoError(t, err)
		return string(cert)
	}
	renewer := &Renewer{Options: Options{Namespace: "shop", ServiceAccount: "web"}, fileRoots: r.PEM()}
	good := sign(r, key.Public(), time.Hour, shopWeb)
	for _, tc := range []struct {
		answer []string
		want   string // "": valid
	}{
		{[]string{good, string(r.PEM())}, ""},
		{[]string{good}, ""},
		{[]string{good, string(foreign.PEM())}, ""},
		{nil, "no certificate"},
		{[]string{"x", string(r.PEM())}, "no certificate in PEM"},
		{[]string{good, "x"}, "roots: no certificate in PEM"},
		{[]string{sign(r, other.Public(), time.Hour, shopWeb), string(r.PEM())}, "another key"},
		{[]string{sign(r, key.Public(), -time.Second, shopWeb), string(r.PEM())}, "expired at"},
		{[]string{sign(foreign, key.Public(), time.Hour, shopWeb)}, "does not chain"},
		{[]string{sign(r, key.Public(), time.Hour, "spiffe://mesh.test/ns/shop/sa/web2")}, "sa/web2"},
		{[]string{sign(r, key.Public(), time.Hour, "https://mesh.test/ns/shop/sa/web")}, "https://"},
	} {
		_, err := renewer.accept(key, tc.answer)
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.want)
	}
}

// trusts returns a condition: the secrets have these roots, and no others.
func trusts(want ...*catest.Root) func(*Secrets) bool {
	return func(s *Secrets) bool {
		list, _ := certpem.Decode(s.Roots)
		var subjects []string
		for _, c := range list {
			subjects = append(subjects, c.Subject.CommonName)
		}
		have := strings.Join(subjects, " ")
		for _, w := range want {
			if !strings.Contains(have, w.Cert.Subject.CommonName) {
				return false
			}
		}
		return len(list) == len(want)
	}
}

// TestRootRotation trusts both roots while the CA sends both; the CA switches to the new one and drops the old one.
func TestRootRotation(t *testing.T) {
	old, next := root(t, "old"), root(t, "next")
	server := authority(t, old)
	o := options(t, server, old)
	renewer := run(t, o)
	await(t, renewer, "a certificate", issued)
	write(t, o.RootsFile, string(old.PEM())+string(next.PEM()))
	await(t, renewer, "both roots", trusts(old, next))
	server.Change(func(s *catest.Settings) { s.Roots = []*catest.Root{old, next} })
	server.Change(func(s *catest.Settings) { s.Signer = next })
	write(t, o.RootsFile, string(next.PEM())+string(old.PEM()))
	s := await(t, renewer, "a certificate of the new root", func(s *Secrets) bool { return s.Leaf().Issuer.CommonName == "next" })
	require.True(t, trusts(old, next)(s))
	server.Change(func(s *catest.Settings) { s.Roots = []*catest.Root{next} })
	write(t, o.RootsFile, string(next.PEM()))
	await(t, renewer, "the old root gone", trusts(next))

	write(t, o.RootsFile, "garbage")
	server.Change(func(s *catest.Settings) { s.Err = errors.New("away") })
	s, _ = renewer.Secrets()
	require.True(t, trusts(next)(s), "an unreadable file changes nothing")
}

const brokenRoot = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"

// TestBrokenRoots checks that roots which cannot be read are left out of files and of the CA's answers, and reported.
func TestBrokenRoots(t *testing.T) {
	first, next := root(t, "first"), root(t, "next")
	server := authority(t, first)
	server.Change(func(s *catest.Settings) { s.Broken = brokenRoot })
	o := options(t, server, first)
	log := &logtext.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	write(t, o.RootsFile, string(first.PEM())+brokenRoot)
	renewer := run(t, o)
	s := await(t, renewer, "a certificate", issued)
	require.Equal(t, string(first.PEM()), string(s.Roots))
	require.Contains(t, renewer.State().LeftOut, "certificate 2: x509: malformed certificate")
	require.Contains(t, log.String(), "a part of the mesh's roots is left out")
	require.Contains(t, log.String(), "a part of the CA's roots is left out")

	write(t, o.RootsFile, string(first.PEM())+brokenRoot+string(next.PEM()))
	await(t, renewer, "the next root", trusts(first, next))
	require.Equal(t, 1, strings.Count(log.String(), "the mesh's roots is left out"), "once")

	write(t, o.RootsFile, brokenRoot)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "the mesh's roots stay unchanged") }, patience, time.Millisecond)
	s, _ = renewer.Secrets()
	require.True(t, trusts(first, next)(s))

	write(t, o.RootsFile, string(first.PEM())+string(next.PEM()))
	require.Eventually(t, func() bool { return renewer.State().LeftOut == "" }, patience, time.Millisecond)

	write(t, o.RootsFile, brokenRoot)
	_, err := New(o)
	require.ErrorContains(t, err, "malformed certificate")
}

func TestMountedCertificates(t *testing.T) {
	r := root(t, "one")
	dir := t.TempDir()
	place := func(id string) {
		key, err := newKey(0)
		require.NoError(t, err)
		text, err := encodeKey(key)
		require.NoError(t, err)
		cert, err := r.Sign(key.Public(), time.Hour, []string{id}, nil)
		require.NoError(t, err)
		write(t, filepath.Join(dir, rootFile), string(r.PEM()))
		write(t, filepath.Join(dir, keyFile), string(text))
		write(t, filepath.Join(dir, chainFile), string(cert))
	}
	renewer := run(t, Options{Namespace: "shop", ServiceAccount: "web", FilesDir: dir, Log: slog.New(slog.DiscardHandler), poll: time.Millisecond})
	require.Eventually(t, func() bool { return strings.Contains(renewer.State().Problem, "--mounted-certs") }, patience, time.Millisecond)
	place("spiffe://elsewhere.test/ns/shop/sa/web")
	first := await(t, renewer, "the certificate of the files", issued)
	place(shopWeb)
	await(t, renewer, "the next one", func(s *Secrets) bool { return s.Leaf().SerialNumber.Cmp(first.Leaf().SerialNumber) != 0 })
	require.NotEmpty(t, renewer.State().RenewAt)
}

func TestOptionErrors(t *testing.T) {
	for want, o := range map[string]Options{
		"correct --cert-ttl": {TTL: time.Second},
		"between 0 and 1":    {GraceRatio: 1},
		"lower --cert-g":     {TTL: time.Minute, GraceRatio: 0.99},
		"--rsa-key-size":     {RSABits: 1024},
		"--xds-root-cert":    {RootsFile: "/nowhere"},
		"no certificate in":  {RootsFile: "identity_test.go"},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
}
