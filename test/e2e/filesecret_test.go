package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

// volume is a folder of files as Kubernetes mounts a Secret: links that lead through "..data", which is replaced.
type volume struct {
	t       *testing.T
	dir     string
	version int
}

func newVolume(t *testing.T) *volume { return &volume{t: t, dir: t.TempDir()} }

func (v *volume) path(name string) string { return filepath.Join(v.dir, name) }

// fill replaces all files at once.
func (v *volume) fill(files map[string][]byte) {
	v.t.Helper()
	v.version++
	folder := fmt.Sprint("..", v.version)
	require.NoError(v.t, os.Mkdir(v.path(folder), 0o700))
	for name, content := range files {
		require.NoError(v.t, os.WriteFile(filepath.Join(v.path(folder), name), content, 0o600))
	}
	require.NoError(v.t, os.Symlink(folder, v.path("..new")))
	require.NoError(v.t, os.Rename(v.path("..new"), v.path("..data")))
	for name := range files {
		if _, err := os.Lstat(v.path(name)); err != nil {
			require.NoError(v.t, os.Symlink(filepath.Join("..data", name), v.path(name)))
		}
	}
}

// pairFiles returns a new certificate for a name and hosts, with its key and the root.
func pairFiles(t *testing.T, root *catest.Root, name string, hosts ...string) (files map[string][]byte, pair *tls.Certificate) {
	t.Helper()
	pair, err := root.Pair(time.Hour, []string{"spiffe://partner/" + name}, hosts)
	require.NoError(t, err)
	certificate, key := pemOf(t, pair)
	return map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": root.PEM()}, pair
}

// inFiles returns a rule by which the client presents the certificate in a volume, and checks the partner with its CA.
func (p *partner) inFiles(v *volume) string {
	return strings.Replace(p.documents(), "credentialName: api-client",
		fmt.Sprintf("clientCertificate: %s, privateKey: %s, caCertificates: %s", v.path("tls.crt"), v.path("tls.key"), v.path("ca.crt")), 1)
}

// TestCertificatesInFiles checks that the client's agent serves its Envoy the files that a rule names. Missing files
// must delay nothing else and cause no refusal. New files must apply without a failed call or a new cluster. Broken
// files must be reported, and the last valid ones stay.
func TestCertificatesInFiles(t *testing.T) {
	m, p, v := startMutual(t), startPartner(t), newVolume(t)
	m.apply(m.config("server", p.inFiles(v))...)
	m.requireStatus(http.StatusServiceUnavailable, "there are no files, and nothing is sent without them", func() (int, string) { return m.call(apiHost, serviceHTTP) })
	require.Empty(t, p.backend.requests())
	m.requireMutual(spiffeID("client"))
	m.requireNothingHeld()
	require.Contains(t, m.client.log.String(), "cannot read a secret from its files")
	require.Contains(t, m.clientSecrets(), "file-cert:"+v.path("tls.crt")+"~"+v.path("tls.key"))

	files, _ := pairFiles(t, p.root, "one")
	v.fill(files)
	m.requirePartner(t, p, "one")
	version, taken := m.clusterVersion(), m.clustersTaken(t)
	calls := startTrafficAt(t, fmt.Sprintf("http://%s:%d/", m.client.ip, serviceHTTP), apiHost)
	for _, name := range []string{"two", "three", "four"} {
		files, _ = pairFiles(t, p.root, name)
		v.fill(files)
		eventually(t, "the new certificate is shown", func() bool { return p.caller(t) == name }, func() string { return m.client.log.String() })
	}
	require.Contains(t, m.clientSecrets(), "spiffe://partner/four")

	files, _ = pairFiles(t, p.root, "five")
	v.fill(map[string][]byte{"tls.crt": files["tls.crt"], "tls.key": []byte("garbage of alice"), "ca.crt": files["ca.crt"]})
	eventually(t, "it is reported", func() bool { return strings.Contains(m.client.log.String(), "the last valid one stays in force") }, m.client.log.String)
	require.NoError(t, os.Remove(v.path("ca.crt")))
	eventually(t, "it is reported", func() bool { return strings.Contains(m.client.log.String(), "ca.crt: no such file") }, m.client.log.String)
	calls.requireOnly("api-v1")
	require.Equal(t, "four", p.caller(t))
	require.NotContains(t, m.client.log.String(), "alice")
	require.Equal(t, version, m.clusterVersion())
	require.Equal(t, taken, m.clustersTaken(t), "Envoy was given no cluster again")
	m.requireNothingHeld()
}

// clientSecrets returns the secrets of the client's Envoy, as a command prints them.
func (m *mutual) clientSecrets() string {
	m.t.Helper()
	status, out := m.ask("proxy-config", "secrets", "client.shop")
	require.Zero(m.t, status, out)
	return out
}

// inFiles returns a Gateway that presents the certificate in a volume, and refuses the clients of its revocation list.
func (e *edge) inFiles(v *volume) string {
	files := fmt.Sprintf("serverCertificate: %s, privateKey: %s", v.path("tls.crt"), v.path("tls.key"))
	text := strings.Replace(e.documents(), "{mode: SIMPLE, credentialName: web}", "{mode: SIMPLE, "+files+"}", 1)
	return strings.Replace(text, "{mode: MUTUAL, credentialName: web}",
		fmt.Sprintf("{mode: MUTUAL, %s, caCertificates: %s, caCrl: %s}", files, v.path("ca.crt"), v.path("ca.crl")), 1)
}

// TestGatewayCertificatesInFiles checks the same for a gateway's certificate, and for the CAs and the revocation list
// that it checks clients with.
func TestGatewayCertificatesInFiles(t *testing.T) {
	e, v := startEdge(t), newVolume(t)
	client, err := e.outside.Pair(time.Hour, []string{"spiffe://outside/client"}, nil)
	require.NoError(t, err)
	e.apply(e.config("server", e.inFiles(v))...)
	eventually(t, "its other listener is there", func() bool {
		return e.call("http", webHost, "/x", nil).status == http.StatusMovedPermanently
	}, e.gateway.log.String)
	require.Error(t, e.call("https", webHost, "/", nil).err)
	e.requireNothingHeld()

	show := func(name string, revoked ...*tls.Certificate) {
		files, own := pairFiles(t, e.outside, name, webHost, mutualHost)
		list, err := e.outside.Revoked(append(revoked, own)...)
		require.NoError(t, err)
		files["ca.crl"] = list
		v.fill(files)
		eventually(t, "the certificate is shown", func() bool {
			return e.call("https", webHost, "/", nil).by == "spiffe://partner/"+name
		}, e.gateway.log.String)
	}
	show("one")
	mutual := func() string {
		got := e.call("https", mutualHost, "/", client)
		return fmt.Sprint(got.status, got.err != nil)
	}
	e.awaitText(t, "200 false", mutual)
	listeners := e.listenersTaken(t)
	show("two")
	show("three", client)
	e.awaitText(t, "0 true", mutual)
	show("four")
	e.awaitText(t, "200 false", mutual)
	require.Equal(t, listeners, e.listenersTaken(t), "Envoy was given no listener again")
	e.requireNothingHeld()
}
