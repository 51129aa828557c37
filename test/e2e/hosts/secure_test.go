//go:build linux

package hosts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

// TestShop runs a shop in which all connections use mutual TLS. Both ends of each call must count and log it, and
// intruders must be refused. No request may be lost while certificates are renewed constantly, the control plane is
// down, and Envoys crash, one of them during that outage. Workloads are intercepted with nftables and iptables in turn.
func TestShop(t *testing.T) {
	m := startShop(t)
	m.requireInterceptedBy(t)
	eventually(t, "the front page", m.front)
	m.requireCounted(t)
	m.requireIntrudersRefused(t)

	l := startLoad(t, m.shopper().Host, "http://"+anyService+"/", "frontend")
	l.requireNoneLost("nothing happens")
	m.renewed(3)
	l.requireNoneLost("certificates are renewed")
	m.requirePrincipalsDecide(t)
	l.requireNoneLost("a policy comes")
	m.changeRoot(t)
	l.requireNoneLost("the root is replaced")
	m.losePlane(t, l)
	l.requireNoneLost("the control plane dies, and comes back")
	for i, service := range []string{"catalog", "frontend", "ratings", "catalog", "frontend"} {
		m.killEnvoy(t, m.of(service)[i%replicas])
		l.requireNoneLost("an Envoy of " + service + " dies")
	}
	l.stop()
	m.requireCounted(t)
}

// certs returns the serial numbers of the certificate that a member's Envoy presents, and of those that it trusts.
func (w *member) certs() (leaves, roots []string, err error) {
	status, text, err := get(w.Host, "http://127.0.0.1:15000/certs", "")
	if err != nil || status != http.StatusOK {
		return nil, nil, fmt.Errorf("%s: status %d, %w", w.name, status, err)
	}
	type list []struct {
		SerialNumber string `json:"serial_number"`
	}
	var certs struct {
		Certificates []struct {
			CACert    list `json:"ca_cert"`
			CertChain list `json:"cert_chain"`
		}
	}
	if err := json.Unmarshal([]byte(text), &certs); err != nil {
		return nil, nil, err
	}
	serials := func(of func(int) list) []string {
		set := map[string]bool{}
		for i := range certs.Certificates {
			for _, c := range of(i) {
				set[strings.TrimLeft(c.SerialNumber, "0")] = true // Envoy writes whole bytes
			}
		}
		return slices.Sorted(maps.Keys(set))
	}
	return serials(func(i int) list { return certs.Certificates[i].CertChain }),
		serials(func(i int) list { return certs.Certificates[i].CACert }), nil
}

// identity returns the identity of a member's agent.
func (w *member) identity() (st identity.State, err error) {
	status, text, err := get(w.Host, "http://127.0.0.1:15020/debug/identity", "")
	if err == nil && status != http.StatusOK {
		err = errors.New(text)
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &st)
	}
	return st, err
}

// each waits for all members, one after the other.
func (m *shopMesh) each(what string, look func(*member) error) {
	m.t.Helper()
	for _, w := range m.members {
		eventually(m.t, w.name+": "+what, func() error { return look(w) })
	}
}

// renewed waits until each Envoy has presented more certificates.
func (m *shopMesh) renewed(more int) {
	m.t.Helper()
	seen := map[string]bool{}
	for range more + 1 {
		m.each("another certificate", func(w *member) error {
			leaves, _, err := w.certs()
			if err == nil && slices.ContainsFunc(leaves, func(s string) bool { return seen[s] }) {
				err = errors.New("it is the same")
			}
			return err
		})
		m.each("", func(w *member) error {
			leaves, _, err := w.certs()
			for _, s := range leaves {
				seen[s] = true
			}
			return err
		})
	}
}

const catalogPolicy = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: catalog, namespace: shop}
spec:
  selector: {matchLabels: {app: catalog}}
  action: ALLOW
  rules: [{from: [{source: {principals: [%s]}}]}]`

func principals(accounts ...string) string {
	for i, a := range accounts {
		accounts[i] = "cluster.local/ns/shop/sa/" + a
	}
	return fmt.Sprintf(catalogPolicy, strings.Join(accounts, ", "))
}

// requireCatalogAnswers waits until the catalog answers the shopper directly with a status, several times in
// succession.
func (m *shopMesh) requireCatalogAnswers(want int) {
	m.t.Helper()
	inTurn := 0
	eventually(m.t, fmt.Sprintf("the catalog answers the shopper with %d", want), func() error {
		status, text, err := get(m.shopper().Host, "http://"+anyService+"/", "catalog")
		if err != nil {
			return err
		}
		m.direct[strconv.Itoa(status)]++
		if inTurn++; status != want {
			inTurn = 0
		}
		if inTurn < 4*replicas {
			return fmt.Errorf("status %d: %s", status, text)
		}
		return nil
	})
}

// requirePrincipalsDecide permits calls of the catalog only from those that need them, by the names in their
// certificates. Both ends must count the refused ones.
func (m *shopMesh) requirePrincipalsDecide(t *testing.T) {
	t.Helper()
	m.requireCatalogAnswers(http.StatusOK)
	m.write("policy.yaml", principals("frontend", "cart"))
	m.requireCatalogAnswers(http.StatusForbidden)
	eventually(t, "refusals are counted", func() error {
		now, err := m.requests()
		if err != nil {
			return err
		}
		e := edge{"shopper", "catalog"}
		if !maps.Equal(now.source[e], m.direct) || !maps.Equal(now.destination[e], m.direct) {
			return fmt.Errorf("they are %v and %v instead of %v", now.source[e], now.destination[e], m.direct)
		}
		return nil
	})
}

// changeRoot replaces the mesh's root as an operator does: all must trust both before anything is signed under the new
// one, and use the new one before the old one is removed.
func (m *shopMesh) changeRoot(t *testing.T) {
	t.Helper()
	old, next := readAuthority(t, m.caDir), newAuthority(t)
	m.trust(slices.Concat(old[ca.RootFile], next[ca.RootFile]), 2)
	m.replace(ca.CertFile, next[ca.CertFile])
	m.replace(ca.KeyFile, next[ca.KeyFile])
	root, err := catest.ReadRoot(next[ca.CertFile], next[ca.KeyFile])
	require.NoError(t, err)
	issuer := root.Cert.Subject.String()
	m.each("a certificate of the new root in Envoy", func(w *member) error {
		st, err := w.identity()
		if err != nil {
			return err
		}
		leaves, _, err := w.certs()
		if err == nil && (st.Issuer != issuer || !slices.Equal(leaves, []string{st.Serial})) {
			err = fmt.Errorf("%v, and in Envoy %v", st, leaves)
		}
		return err
	})
	m.trust(next[ca.RootFile], 1)
}

// trust makes the mesh trust roots, and waits until each Envoy does.
func (m *shopMesh) trust(roots []byte, n int) {
	m.t.Helper()
	m.replace(ca.RootFile, roots)
	eventually(m.t, "the authority to have the roots", func() error {
		status, text, err := get(m.control, "http://127.0.0.1:15014/debug/ca", "")
		var st struct{ CA ca.State }
		if err == nil {
			err = json.Unmarshal([]byte(text), &st)
		}
		if err == nil && len(st.CA.Roots) != n {
			err = fmt.Errorf("status %d: %s", status, text)
		}
		return err
	})
	m.each("the roots in Envoy", func(w *member) error {
		_, have, err := w.certs()
		if err == nil && len(have) != n {
			err = fmt.Errorf("it has %v", have)
		}
		return err
	})
}

// replace replaces a file of the authority in one step.
func (m *shopMesh) replace(name string, content []byte) {
	m.t.Helper()
	next := filepath.Join(m.caDir, ".next")
	require.NoError(m.t, os.WriteFile(next, bytes.Clone(content), 0o600))
	require.NoError(m.t, os.Rename(next, filepath.Join(m.caDir, name)))
}
