package sds

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonsail/moonsail/internal/config/certfile"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

// shelf is Files with a server and a folder.
type shelf struct {
	t        *testing.T
	dir      string
	log      *logtext.Buffer
	registry *prometheus.Registry
	files    *Files
	client   secretv3.SecretDiscoveryServiceClient
}

// startFiles: with a poll of an hour, only events report changes; with a settle of an hour, only polling does.
func startFiles(t *testing.T, poll, settle time.Duration) *shelf {
	t.Helper()
	work, err := os.MkdirTemp("", "sds")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(work)) })
	s := &shelf{t: t, dir: t.TempDir(), log: &logtext.Buffer{}, registry: prometheus.NewRegistry()}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.files, err = NewFiles(s.registry, log)
	require.NoError(t, err)
	s.files.poll, s.files.settle = poll, settle
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.files.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		await.From(t, done)
	})
	server, err := Start(t.Context(), work, nil, s.files, log)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	conn, err := grpc.NewClient("unix://"+SocketPath(work), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	s.client = secretv3.NewSecretDiscoveryServiceClient(conn)
	return s
}

func (s *shelf) path(name string) string { return filepath.Join(s.dir, name) }

func (s *shelf) write(name string, content []byte) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), content, 0o600))
}

// pair writes a new certificate with its key, and returns the certificate.
func (s *shelf) pair(root *catest.Root, certificate, key string) string {
	s.t.Helper()
	chain, private := issue(s.t, root)
	s.write(key, private)
	s.write(certificate, chain)
	return string(chain)
}

// subscription is a stream for one name. A channel receives what it is sent.
type subscription struct {
	t    *testing.T
	got  chan *tlsv3.Secret
	stop context.CancelFunc
}

func (s *shelf) ask(name string) *subscription {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	stream, err := s.client.StreamSecrets(ctx)
	require.NoError(s.t, err)
	require.NoError(s.t, stream.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{name}}))
	out := &subscription{s.t, make(chan *tlsv3.Secret, 16), cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			resp, err := stream.Recv()
			if err != nil || len(resp.Resources) != 1 {
				return
			}
			secret := &tlsv3.Secret{}
			if resp.Resources[0].UnmarshalTo(secret) != nil || secret.Name != name {
				return
			}
			out.got <- secret
			if stream.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{name}, ResponseNonce: resp.Nonce}) != nil {
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		await.From(s.t, done)
	})
	return out
}

func (s *subscription) next() *tlsv3.Secret {
	s.t.Helper()
	select {
	case out := <-s.got:
		return out
	case <-time.After(time.Minute):
		s.t.Fatal("nothing was sent")
		return nil
	}
}

func (s *subscription) certificate() string {
	s.t.Helper()
	return string(s.next().GetTlsCertificate().GetCertificateChain().GetInlineBytes())
}

func (s *subscription) nothing() {
	s.t.Helper()
	select {
	case secret := <-s.got:
		s.t.Fatalf("%s was sent", secret.Name)
	default:
	}
}

func (s *shelf) awaitLog(part string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.log.String(), part) }, time.Minute, 5*time.Millisecond, part)
}

func (s *shelf) failing() float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() == "moonsail_agent_file_secrets_failing" {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	s.t.Fatal("no such metric")
	return 0
}

func pairName(t *testing.T, certificate, key string) string {
	t.Helper()
	name, ok := certfile.Pair(certificate, key)
	require.True(t, ok)
	return name
}

// TestMissingFilesAreServedWhenTheyExist checks files in a folder that does not exist yet and cannot be watched.
func TestMissingFilesAreServedWhenTheyExist(t *testing.T) {
	s := startFiles(t, 20*time.Millisecond, time.Millisecond)
	root := newRoot(t)
	stream := s.ask(pairName(t, s.path("late/cert.pem"), s.path("late/key.pem")))
	s.awaitLog("cannot read a secret from its files")
	require.Contains(t, s.log.String(), "late/cert.pem: no such file or directory")
	require.InDelta(t, 1, s.failing(), 0)
	stream.nothing()
	require.NoError(t, os.Mkdir(s.path("late"), 0o700))
	want := s.pair(root, "late/cert.pem", "late/key.pem")
	require.Equal(t, want, stream.certificate())
	require.InDelta(t, 0, s.failing(), 0)
	s.awaitLog("valid again")

	require.NoError(t, os.RemoveAll(s.path("late")))
	s.awaitLog("the last valid one stays in force")
	stream.nothing()
	require.Equal(t, want, s.ask(pairName(t, s.path("late/cert.pem"), s.path("late/key.pem"))).certificate(), "a later subscription gets it too")
}

// TestInvalidFiles checks that an error is logged once and counted, contains no part of a file, and leaves the last
// valid secret in force.
func TestInvalidFiles(t *testing.T) {
	s := startFiles(t, time.Hour, time.Millisecond)
	root := newRoot(t)
	want := s.pair(root, "cert.pem", "key.pem")
	stream := s.ask(pairName(t, s.path("cert.pem"), s.path("key.pem")))
	require.Equal(t, want, stream.certificate())

	_, other := issue(t, root)
	for i, c := range []struct{ file, content, why string }{
		{"key.pem", "", "key.pem: empty"},
		{"key.pem", string(other), "private key does not match public key"},
		{"cert.pem", "garbage from a user", "failed to find any PEM data"},
		{"cert.pem", strings.Repeat("x", maxFile+1), "larger than 4194304 bytes"},
	} {
		s.write(c.file, []byte(c.content))
		s.awaitLog(c.why)
		require.GreaterOrEqual(t, testutil.ToFloat64(s.files.failures), float64(i+1))
	}
	require.NotContains(t, s.log.String(), "from a user")
	require.NotContains(t, s.log.String(), "PRIVATE KEY")
	stream.nothing()
	require.NoError(t, os.Remove(s.path("cert.pem")))
	require.NoError(t, os.Mkdir(s.path("cert.pem"), 0o700))
	s.awaitLog("cert.pem: not a file")
	require.NoError(t, os.Remove(s.path("cert.pem")))
	stream.nothing()
	require.Equal(t, s.pair(root, "cert.pem", "key.pem"), stream.certificate())
}

// TestKeysThatEnvoyRefuses checks that they are not sent: the listener would have no certificate.
func TestKeysThatEnvoyRefuses(t *testing.T) {
	s := startFiles(t, time.Hour, time.Millisecond)
	chain, key := weakPair(t)
	s.write("cert.pem", chain)
	s.write("key.pem", key)
	stream := s.ask(pairName(t, s.path("cert.pem"), s.path("key.pem")))
	s.awaitLog("an RSA key of 1024 bits")
	stream.nothing()
}

// TestSwappedVolume checks files of Kubernetes, which are links through "..data", a link that changes.
func TestSwappedVolume(t *testing.T) {
	s := startFiles(t, time.Hour, time.Millisecond)
	root := newRoot(t)
	fill := func(version string) string {
		require.NoError(t, os.Mkdir(s.path(version), 0o700))
		out := s.pair(root, version+"/tls.crt", version+"/tls.key")
		require.NoError(t, os.Symlink(version, s.path("..data_tmp")))
		require.NoError(t, os.Rename(s.path("..data_tmp"), s.path("..data")))
		return out
	}
	first := fill("..1")
	for _, name := range []string{"tls.crt", "tls.key"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), s.path(name)))
	}
	stream := s.ask(pairName(t, s.path("tls.crt"), s.path("tls.key")))
	require.Equal(t, first, stream.certificate())
	for _, version := range []string{"..2", "..3"} {
		require.Equal(t, fill(version), stream.certificate())
	}
	require.NoError(t, os.RemoveAll(s.path("..1")))
	require.Equal(t, fill("..4"), stream.certificate())
}

// TestRootsInFiles checks CAs with a list of revoked certificates: they form one secret, and both must be valid.
func TestRootsInFiles(t *testing.T) {
	s := startFiles(t, time.Hour, time.Millisecond)
	root, other := newRoot(t), newRoot(t)
	s.write("ca.pem", root.PEM())
	alone, _ := certfile.Roots(s.path("ca.pem"), "")
	both, _ := certfile.Roots(s.path("ca.pem"), s.path("crl.pem"))
	first, second := s.ask(alone), s.ask(both)
	require.Equal(t, string(root.PEM()), string(first.next().GetValidationContext().GetTrustedCa().GetInlineBytes()))
	s.awaitLog("crl.pem: no such file")
	second.nothing()
	s.write("crl.pem", root.PEM())
	s.awaitLog("crl.pem is not a list of revoked certificates")
	list := revoked(t, root)
	s.write("crl.pem", list)
	require.Equal(t, string(list), string(second.next().GetValidationContext().GetCrl().GetInlineBytes()))
	list = revoked(t, root)
	s.write("crl.pem", list)
	require.Equal(t, string(list), string(second.next().GetValidationContext().GetCrl().GetInlineBytes()), "a new list with the same CAs")
	s.write("ca.pem", other.PEM())
	require.Equal(t, string(other.PEM()), string(first.next().GetValidationContext().GetTrustedCa().GetInlineBytes()))
	require.Equal(t, string(other.PEM()), string(second.next().GetValidationContext().GetTrustedCa().GetInlineBytes()))
}

// TestBrokenRootsInFiles checks that a certificate which cannot be read does not affect the others of its file.
func TestBrokenRootsInFiles(t *testing.T) {
	s := startFiles(t, time.Hour, time.Millisecond)
	root := newRoot(t)
	const broken = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
	s.write("ca.pem", []byte(broken+string(root.PEM())))
	name, _ := certfile.Roots(s.path("ca.pem"), "")
	stream := s.ask(name)
	require.Equal(t, string(root.PEM()), string(stream.next().GetValidationContext().GetTrustedCa().GetInlineBytes()))
	s.awaitLog("a part of the CAs in a file is left out")
	s.write("ca.pem", []byte(broken))
	s.awaitLog("the last valid one stays in force")
}

// TestReadsOnlySubscribedFiles checks that other files are not read, also after the end of a subscription.
func TestReadsOnlySubscribedFiles(t *testing.T) {
	s := startFiles(t, 5*time.Millisecond, time.Millisecond)
	root := newRoot(t)
	s.pair(root, "cert.pem", "key.pem")
	for _, name := range []string{s.path("cert.pem"), "file:" + s.path("cert.pem"), "file-cert:" + s.path("cert.pem"), "file-root:", "kubernetes://x"} {
		s.ask(name)
		s.awaitLog("Envoy requests an unknown secret: listeners and clusters that use it wait for it\" name=" + name)
	}
	stream := s.ask(pairName(t, s.path("cert.pem"), s.path("key.pem")))
	stream.certificate()
	require.Len(t, s.wanted(), 1)
	again := s.ask(pairName(t, s.path("cert.pem"), s.path("key.pem")))
	again.certificate()
	again.stop()
	stream.stop()
	require.Eventually(t, func() bool { return len(s.wanted()) == 0 }, time.Minute, time.Millisecond)
}

func (s *shelf) wanted() []string {
	names, _ := s.files.names()
	return names
}

// TestSystemRoots reads this machine's roots.
func TestSystemRoots(t *testing.T) {
	if _, err := os.Stat(rootsPath(certfile.System)); err != nil {
		t.Skip("no roots on this system: ", err)
	}
	s := startFiles(t, time.Hour, time.Millisecond)
	name, _ := certfile.Roots(certfile.System, "")
	require.Contains(t, string(s.ask(name).next().GetValidationContext().GetTrustedCa().GetInlineBytes()), "BEGIN CERTIFICATE")
}

// TestMetricsBesideIdentity checks that files and the workload's certificate share a counter of failures and the gauges
// of expiry.
func TestMetricsBesideIdentity(t *testing.T) {
	r := prometheus.NewRegistry()
	identity.NewMetrics(r)
	f, err := NewFiles(r, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	f.failures.Inc()
	dir := t.TempDir()
	s := &shelf{t: t, dir: dir}
	s.pair(newRoot(t), "cert.pem", "key.pem")
	name := pairName(t, s.path("cert.pem"), s.path("key.pem"))
	require.True(t, f.want(name))
	of, _ := certfile.Parse(name)
	read, leftOut, err := readSecret(name, of)
	require.NoError(t, err)
	f.note(name, nil, read, leftOut, nil)

	families, err := r.Gather()
	require.NoError(t, err)
	left := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			switch family.GetName() {
			case "istio_agent_num_file_secret_failures_total":
				require.InDelta(t, 1, m.GetCounter().GetValue(), 0)
			case "istio_agent_cert_expiry_seconds":
				left[m.Label[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	require.Len(t, left, 3, "including default and ROOTCA")
	require.InDelta(t, time.Hour.Seconds(), left[name], 120)
}
