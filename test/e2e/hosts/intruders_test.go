//go:build linux

package hosts

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/demo"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/netns"
)

// newAuthority creates a certificate authority that the mesh does not know.
func newAuthority(t *testing.T) ca.Files {
	t.Helper()
	store := ca.Dir{Path: filepath.Join(t.TempDir(), "ca")}
	_, err := ca.Open(t.Context(), ca.Options{Store: store, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return readAuthority(t, store.Path)
}

func readAuthority(t *testing.T, dir string) ca.Files {
	t.Helper()
	c, err := ca.Dir{Path: dir}.Read(t.Context())
	require.NoError(t, err)
	return c.Files
}

// certificate returns a certificate of an authority for an account of the shop.
func certificate(t *testing.T, by ca.Files, account string) *tls.Certificate {
	t.Helper()
	root, err := catest.ReadRoot(by[ca.CertFile], by[ca.KeyFile])
	require.NoError(t, err)
	pair, err := root.Pair(time.Hour, []string{"spiffe://cluster.local/ns/shop/sa/" + account}, nil)
	require.NoError(t, err)
	return pair
}

// present requests a page of a workload with a certificate; nil: without.
func present(t *testing.T, from *netns.Host, to *member, cert *tls.Certificate) (status int, err error) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"istio-http/1.1", "istio"}} //nolint:gosec // the server is not what is tested
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	conn, err := dialFrom(t.Context(), from, "tcp", at(to.Host, appPort))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	secure := tls.Client(conn, config)
	if _, err := io.WriteString(secure, "GET / HTTP/1.1\r\nHost: "+to.App+"\r\nConnection: close\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// requireIntrudersRefused checks that a host without a sidecar, and one whose sidecar has no right to be there, cannot
// call the shop.
func (m *shopMesh) requireIntrudersRefused(t *testing.T) {
	t.Helper()
	plain := m.net.Host()
	own, foreign := readAuthority(t, m.caDir), newAuthority(t)
	for _, w := range m.members {
		if !w.Serves() {
			continue
		}
		for _, port := range []int{appPort, 15006} {
			status, text, err := get(plain, "http://"+at(w.Host, port)+"/", w.App)
			require.Error(t, err, "plain text to %s: status %d, %s", w.name, status, text)
		}
		_, err := present(t, plain, w, nil)
		require.Error(t, err, "no certificate")
		_, err = present(t, plain, w, certificate(t, foreign, "frontend"))
		require.Error(t, err, "a certificate of another authority")
	}
	cart := m.of("cart")[0]
	status, err := present(t, plain, cart, certificate(t, own, "frontend"))
	require.NoError(t, err, "the same with a certificate of this one")
	require.Equal(t, http.StatusOK, status)
	m.requireTokenRefused(t)
}

// requireTokenRefused checks that a sidecar with an unknown token gets neither a certificate nor configuration, and
// lets no call out.
func (m *shopMesh) requireTokenRefused(t *testing.T) {
	t.Helper()
	w := &member{Workload: demo.Workload{Name: "frontend-9", App: "frontend", Version: "v1"},
		workload: &workload{Host: m.net.Host(), name: "frontend-9"}}
	w.agent = run(t, w.Host, m.agentArgs(w, "made-up-token")...)
	eventually(t, "the token is refused", func() error {
		if log := w.agent.log.String(); !strings.Contains(log, "unknown token") {
			return fmt.Errorf("the log: %s", log)
		}
		return nil
	})
	_, _, err := get(w.Host, "http://"+anyService+"/", "frontend")
	require.Error(t, err)
	require.Empty(t, w.envoys(t))
	require.NoError(t, w.agent.cmd.Process.Kill())
	await.From(t, w.agent.done)
}
