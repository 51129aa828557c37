package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/test/kubetest"
)

// TestDryRun checks that a real API server answers with what an object would be, and stores nothing.
func TestDryRun(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, shop)
	before, err := c.Client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	client, err := Connect(Cluster{Kubeconfig: c.Kubeconfig()})
	require.NoError(t, err)
	defer client.Close()
	dry, err := client.NewDryRun("kubectl")
	require.NoError(t, err)
	apply := func(text string) (*unstructured.Unstructured, error) {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
		return dry.Apply(t.Context(), o, ns)
	}

	got, err := apply("apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {a: b}}\nspec: {ports: [{name: grpc, port: 81}]}\n")
	require.NoError(t, err)
	spec, _, err := unstructured.NestedMap(got.Object, "spec")
	require.NoError(t, err)
	require.Equal(t, before.Spec.ClusterIP, spec["clusterIP"], "it keeps what others set")
	require.Len(t, spec["ports"], 2, "ports of two managers are merged")
	require.Equal(t, ns, got.GetNamespace())

	got, err = apply("apiVersion: v1\nkind: Service\nmetadata: {name: new}\nspec: {ports: [{port: 80}]}\n")
	require.NoError(t, err)
	affinity, _, _ := unstructured.NestedString(got.Object, "spec", "sessionAffinity")
	require.Equal(t, "None", affinity, "it has defaults")

	after, err := c.Client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before.ResourceVersion, after.ResourceVersion)
	_, err = c.Client.CoreV1().Services(ns).Get(t.Context(), "new", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "nothing is stored")

	for name, tc := range map[string]struct{ object, want string }{
		"refused by the schema": {"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web}\nspec: {hosts: 7}\n", "spec.hosts"},
		"an unknown kind":       {"apiVersion: v1\nkind: Servise\nmetadata: {name: web}\n", "the API server has no kind Servise in v1"},
		"an unknown group":      {"apiVersion: example.com/v1\nkind: Web\nmetadata: {name: web}\n", "the API server has no kind Web in example.com/v1"},
		"no namespace":          {"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: absent}\nspec: {ports: [{port: 80}]}\n", `namespaces "absent" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := apply(tc.object)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
