package cluster

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/kubetest"
)

// list is the authority's list of revoked certificates, which is empty.
func (s *signer) list(t *testing.T) []byte {
	t.Helper()
	der, err := x509.CreateRevocationList(rand.Reader,
		&x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}, s.cert, s.key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// TestListsOfRevokedCertificates checks that each namespace gets the lists, that a control plane which starts with invalid
// ones leaves them, and that they can be removed.
func TestListsOfRevokedCertificates(t *testing.T) {
	c := kubetest.Alone(t)
	ns, secrets := c.Namespace(t), c.Client.CoreV1().Secrets("istio-system")
	root := newSigner(t, "root", nil)
	list := root.list(t)
	secret, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cacerts"}, Data: map[string][]byte{
		ca.CertFile: root.pem, ca.KeyFile: root.private, ca.RootFile: root.pem, ca.RevokedFile: list,
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	requireLists := func(t *testing.T, want string) {
		t.Helper()
		c.Eventually(t, "lists of revoked certificates", func(ctx context.Context) error {
			m, err := c.Client.CoreV1().ConfigMaps(ns).Get(ctx, kube.RootCertName, metav1.GetOptions{})
			if err == nil && m.Data[kube.RevokedKey] != want {
				err = fmt.Errorf("it has %q", m.Data[kube.RevokedKey])
			}
			return err
		})
	}
	t.Run("published", func(t *testing.T) {
		issuing(t, c, 1)
		requireLists(t, string(list))
	})

	secret.Data[ca.RevokedFile] = []byte("invalid")
	secret, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	issuing(t, c, 1)
	other := c.Namespace(t)
	require.Equal(t, string(root.pem), rootsOf(t, c, other), "the new control plane has written")
	requireLists(t, string(list))

	delete(secret.Data, ca.RevokedFile)
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	requireLists(t, "")
}
