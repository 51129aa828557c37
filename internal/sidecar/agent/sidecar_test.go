package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/test/logtext"
	"github.com/moonsail/moonsail/test/netns"
)

const (
	patience = time.Minute // for conditions; long enough for a busy machine
	poll     = 10 * time.Millisecond
)

// subprocess makes the test binary run one sidecar instead of the tests. It holds name, address and control plane,
// separated by spaces.
const subprocess = "MOONSAIL_TEST_SIDECAR"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(subprocess)); len(words) == 3 {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := Run(ctx, Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Workload: workload.Workload{Name: words[0], IPs: []string{words[1]}}, XDS: XDS{Address: words[2], Plaintext: true}})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

var addresses atomic.Uint32

// ownIP returns a loopback address that no other running test of this process uses, so that the ports of a sidecar
// are free there. Addresses repeat after 254 calls.
func ownIP() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid/250%128, pid%250, addresses.Add(1)%254+1)
}

// sidecar is an agent run by a test.
type sidecar struct {
	t      *testing.T
	ip     string
	log    *logtext.Buffer
	cancel context.CancelFunc
	abort  chan struct{}
	done   chan struct{}
	err    error // read after done
}

// startSidecar runs an agent at ip until the test ends.
func startSidecar(t *testing.T, ip, xds string, change func(*Config)) *sidecar {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &sidecar{t: t, ip: ip, log: &logtext.Buffer{}, cancel: cancel, abort: make(chan struct{}), done: make(chan struct{})}
	c := Config{
		Workload:     workload.Workload{Name: "app-1", Namespace: "shop", IPs: []string{ip}, Labels: map[string]string{"app": "app"}},
		XDS:          XDS{Address: xds, Plaintext: true},
		DrainTime:    ptr(100 * time.Millisecond),
		LeaveTimeout: ptr(time.Duration(0)), // tests of the deregistration set it
		EnvoyPath:    findEnvoy(t),
		Log:          slog.New(slog.NewTextHandler(s.log, nil)),
		Abort:        s.abort,
	}
	if change != nil {
		change(&c)
	}
	go func() {
		defer close(s.done)
		s.err = Run(ctx, c)
	}()
	t.Cleanup(func() {
		cancel()
		s.await("the agent to end", func() bool {
			select {
			case <-s.done:
				return true
			default:
				return false
			}
		})
		if t.Failed() {
			t.Logf("log of %s:\n%s", ip, s.log)
		}
	})
	return s
}

// ended waits for Run and returns its result.
func (s *sidecar) ended() error {
	s.t.Helper()
	select {
	case <-s.done:
		return s.err
	case <-time.After(patience):
		s.t.Fatalf("the agent did not end; its log:\n%s", s.log)
		return nil
	}
}

func (s *sidecar) await(what string, condition func() bool) {
	s.t.Helper()
	require.Eventually(s.t, condition, patience, poll, "waiting for %s", what)
}

// get sends a request to one of the sidecar's ports. status is 0 without an answer.
func (s *sidecar) get(port int, path string) (status int, body string) {
	client := &http.Client{Timeout: patience / 2, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + net.JoinHostPort(s.ip, strconv.Itoa(port)) + path)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	content, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(content)
}

func (s *sidecar) awaitReady() {
	s.t.Helper()
	s.await("readiness", func() bool {
		status, _ := s.get(DefaultHealthPort, "/healthz/ready")
		return status == http.StatusOK
	})
}

var readyPid = regexp.MustCompile(`msg="sidecar ready".* pid=(\d+)`)

// awaitPid returns the process id of the nth Envoy that became ready.
func (s *sidecar) awaitPid(n int) int {
	s.t.Helper()
	var found [][]string
	s.await("Envoy to be reported ready", func() bool {
		found = readyPid.FindAllStringSubmatch(s.log.String(), -1)
		return len(found) >= n
	})
	pid, err := strconv.Atoi(found[n-1][1])
	require.NoError(s.t, err)
	return pid
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// certificate is a self-signed certificate for localhost.
type certificate struct {
	certPEM []byte
	tls     tls.Certificate
}

var selfSigned = func() func(*testing.T) certificate {
	make := sync.OnceValues(newCertificate)
	return func(t *testing.T) certificate {
		t.Helper()
		c, err := make()
		require.NoError(t, err)
		return c
	}
}()

func newCertificate() (certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return certificate{}, err
	}
	return certificate{
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		tls:     tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}, nil
}
