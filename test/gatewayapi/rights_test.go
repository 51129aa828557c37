package gatewayapi

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// asDeployed writes a kubeconfig with the rights of deploy/rbac.yaml, and those to read Secrets and ConfigMaps, which
// an operator binds.
func (c *cluster) asDeployed(t *testing.T) string {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	docs := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		o := &unstructured.Unstructured{}
		err := docs.Decode(o)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if err := c.client.Create(t.Context(), o); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	for _, role := range []string{"moonsail-credentials", "moonsail-authorities"} {
		require.NoError(t, c.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "moonsail", Namespace: "istio-system"}},
		}))
	}
	return c.kubeconfigOf(t, "istio-system", "moonsail")
}

// kubeconfigOf writes the kubeconfig of a service account.
func (c *cluster) kubeconfigOf(t *testing.T, namespace, name string) string {
	t.Helper()
	token, err := c.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	require.NoError(t, err)
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &api.AuthInfo{Token: token.Status.Token}
	}
	out := filepath.Join(c.work, name+".kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, out))
	return out
}
