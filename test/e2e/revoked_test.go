package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/security/ca"
)

// TestRevokedCertificates checks that workloads and the control plane refuse a revoked certificate, and that everyone else
// goes on.
func TestRevokedCertificates(t *testing.T) {
	m := startMutual(t, peerAuthentication("STRICT"))
	m.requireMutual(spiffeID("client"))
	stolen, other := m.pair(m.root, spiffeID("client")), m.pair(m.root, spiffeID("client"))
	status, err := m.handshake(stolen)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)

	list, err := m.root.Revoked(stolen)
	require.NoError(t, err)
	file := filepath.Join(m.caDir, ca.RevokedFile)
	require.NoError(t, os.WriteFile(file, list, 0o600))
	eventually(t, "the revoked certificate is refused", func() bool { _, err := m.handshake(stolen); return err != nil }, nil)
	_, err = m.handshake(other)
	require.NoError(t, err)
	m.requireMutual(spiffeID("client"))

	require.NoError(t, os.WriteFile(file, []byte("not a list"), 0o600))
	eventually(t, "the server has seen the invalid list", func() bool {
		return strings.Contains(m.server.log.String(), "the lists of revoked certificates stay unchanged")
	}, nil)
	_, err = m.handshake(stolen)
	require.Error(t, err, "the last valid lists stay")

	require.NoError(t, os.Remove(file))
	eventually(t, "nothing is revoked", func() bool { _, err := m.handshake(stolen); return err == nil }, nil)
	m.requireMutual(spiffeID("client"))
	m.requireNothingHeld()
}
