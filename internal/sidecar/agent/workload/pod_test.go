package workload

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func readPod(t *testing.T, name string) Workload {
	t.Helper()
	w, err := ReadPod("testdata/pods.yaml", name)
	require.NoError(t, err)
	return w
}

func TestReadPod(t *testing.T) {
	require.Equal(t, Workload{
		Name: "ratings-0", IPs: []string{"127.0.10.4"}, Containers: []string{"app"},
		WorkloadName: "ratings-0", Owner: "kubernetes://apis/v1/namespaces/default/pods/ratings-0",
	}, readPod(t, "ratings-0"))

	w := readPod(t, "reviews-v1-6d8f-x2x")
	require.Equal(t, "reviews-v1", w.WorkloadName)
	require.Equal(t, "kubernetes://apis/apps/v1/namespaces/shop/deployments/reviews-v1", w.Owner)
	require.Equal(t, []string{"10.1.2.3", "fd00::3"}, w.IPs)
	require.Equal(t, []string{"app"}, w.Containers, "the sidecar is not one of the application's containers")
	require.Equal(t, []Port{{"http", 9080, "TCP"}, {"", 9090, "UDP"}, {"front", 8080, "TCP"}}, w.Ports)
}

func TestReadPodOfRollout(t *testing.T) {
	w := readPod(t, "cart-5c6b-x2x")
	require.Equal(t, "cart", w.WorkloadName)
	require.Equal(t, "kubernetes://apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/cart", w.Owner)
}

func TestReadPodErrors(t *testing.T) {
	for name, want := range map[string]string{
		"":    "3 Pods: choose one with --name: reviews-v1-6d8f-x2x, cart-5c6b-x2x, ratings-0",
		"foo": "no Pod named foo: correct --name: the file has reviews-v1-6d8f-x2x, cart-5c6b-x2x, ratings-0",
	} {
		_, err := ReadPod("testdata/pods.yaml", name)
		require.ErrorContains(t, err, "testdata/pods.yaml")
		require.ErrorContains(t, err, want)
	}
	_, err := ReadPod("testdata/absent.yaml", "")
	require.ErrorContains(t, err, "correct --pod")
	none := filepath.Join(t.TempDir(), "service.yaml")
	require.NoError(t, os.WriteFile(none, []byte("kind: Service\n"), 0o600))
	_, err = ReadPod(none, "")
	require.ErrorContains(t, err, none+": no object of kind Pod")
	wrong := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(wrong, []byte("kind: Pod\nspec:\n  containers: 3\n"), 0o600))
	_, err = ReadPod(wrong, "")
	require.EqualError(t, err, "--pod "+wrong+": line 3: invalid value for a field of a Pod: !!int `3`")
}

func TestPodInfo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("labels", "app=\"web\"\nversion=\"v1\"\n")
	write("annotations", `proxy.istio.io/config="concurrency: 2\ndrainDuration: 5s\n"`+"\n"+`quote="a \"b\" = c"`)
	w := &Workload{}
	require.NoError(t, w.ReadPodInfo(dir))
	require.Equal(t, map[string]string{"app": "web", "version": "v1"}, w.Labels)
	require.Equal(t, map[string]string{"proxy.istio.io/config": "concurrency: 2\ndrainDuration: 5s\n", "quote": `a "b" = c`}, w.Annotations)
	w = &Workload{Labels: map[string]string{"own": "label"}}
	require.NoError(t, w.ReadPodInfo(dir))
	require.Equal(t, map[string]string{"own": "label"}, w.Labels)
	require.NoError(t, (&Workload{}).ReadPodInfo(filepath.Join(dir, "missing")))
	write("labels", "app=web\n")
	require.ErrorContains(t, (&Workload{}).ReadPodInfo(dir), "--pod-info")
}
