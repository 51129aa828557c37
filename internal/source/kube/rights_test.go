package kube

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/kubetest"
)

// TestDenied checks that the error about waiting names denied access.
func TestDenied(t *testing.T) {
	c := kubetest.Shared(t)
	file := as(t, c, c.Namespace(t), "default")
	m := followWith(t, file)
	m.eventually(t, "a reason", func() bool {
		err := m.Waiting()
		return err != nil && strings.Contains(err.Error(), "forbidden")
	})
	require.Zero(t, m.revision()-1)
}

// TestRights checks that the shipped roles suffice.
func TestRights(t *testing.T) {
	c := kubetest.Shared(t)
	roles, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(roles))
	file := as(t, c, "istio-system", "moonsail")
	m := followWith(t, file)
	m.ready(t)
	m.eventually(t, "the heartbeat", func() bool { return len(m.counts.delay(DelayWatch)) > 0 })
	m.status.mu.Lock()
	defer m.status.mu.Unlock()
	require.Empty(t, m.status.failing)

	client, err := Connect(Cluster{Kubeconfig: file})
	require.NoError(t, err)
	defer client.Close()
	lists, err := client.Listings(t.Context(), "istio-system", model.MeshConfigName)
	require.NoError(t, err)
	for _, l := range append(lists, client.MeshConfig("istio-system", model.MeshConfigName)) {
		_, err := l.Read(t.Context())
		require.NoError(t, err, "%s: debug pages list it", l.Kind)
	}
}

// TestRightsToStatuses checks that the shipped role may write the statuses of exactly those kinds whose conditions are
// written, by their names in an API server.
func TestRightsToStatuses(t *testing.T) {
	roles, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	var given []string
	for _, doc := range strings.Split(string(roles), "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(doc), &role))
		for _, rule := range role.Rules {
			for _, r := range rule.Resources {
				if strings.HasSuffix(r, "/status") && slices.Contains(rule.Verbs, "patch") {
					given = append(given, r+" of "+rule.APIGroups[0])
				}
			}
		}
	}
	c := kubetest.Shared(t)
	client, err := Connect(Cluster{Kubeconfig: c.Kubeconfig()})
	require.NoError(t, err)
	defer client.Close()
	kinds, err := client.kinds(t.Context(), "istio-system", model.MeshConfigName)
	require.NoError(t, err)
	var needed []string
	for _, r := range kinds {
		if r.observed() {
			needed = append(needed, r.plural+"/status of "+r.Group)
		}
	}
	require.ElementsMatch(t, needed, given)
}

// as writes a kubeconfig of a service account.
func as(t *testing.T, c *kubetest.Cluster, ns, account string) string {
	t.Helper()
	config := c.REST(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
		AuthInfos: map[string]*api.AuthInfo{"u": {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, ClientCertificate: config.CertFile, ClientKey: config.KeyFile,
			Token: config.BearerToken, Impersonate: "system:serviceaccount:" + ns + ":" + account,
		}},
		Contexts:       map[string]*api.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}
