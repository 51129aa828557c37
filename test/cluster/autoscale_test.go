package cluster

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

// command runs a command of moonsail as an administrator of the cluster.
func command(ctx context.Context, t *testing.T, c *kubetest.Cluster, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, self, append(args, "--kubeconfig", c.Kubeconfig())...)
	cmd.Env = append(os.Environ(), labtest.AsMoonsail)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
	return string(out)
}

// TestAutoscalingKeepsReplicas checks that a control plane keeps its number of replicas when an autoscaler begins to decide it.
// The API server replaces a number that has no owner by 1.
func TestAutoscalingKeepsReplicas(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	of := []string{"--namespace", ns, "--revision", "scaled"}
	t.Cleanup(func() {
		command(context.Background(), t, c, slices.Concat([]string{"uninstall"}, of, []string{"--yes"})...)
	})
	command(t.Context(), t, c, slices.Concat([]string{"install"}, of, []string{"--image", "moonsail", "--replicas", "5", "--skip-precheck", "--wait=false",
		"--set", "sidecarInjectorWebhook.failurePolicy=Ignore"})...)
	replicas := func() int32 {
		d, err := c.Client.AppsV1().Deployments(ns).Get(t.Context(), "moonsail-scaled", metav1.GetOptions{})
		require.NoError(t, err)
		return *d.Spec.Replicas
	}
	require.EqualValues(t, 5, replicas())
	out := command(t.Context(), t, c, slices.Concat([]string{"upgrade"}, of, []string{"--set", "autoscaleEnabled=true", "--yes", "--wait=false"})...)
	require.EqualValues(t, 5, replicas())
	require.NotContains(t, out, "spec.replicas")
	_, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(t.Context(), "moonsail-scaled", metav1.GetOptions{})
	require.NoError(t, err)
	command(t.Context(), t, c, slices.Concat([]string{"upgrade"}, of, []string{"--set", "autoscaleEnabled=false,replicaCount=3", "--yes", "--wait=false"})...)
	require.EqualValues(t, 3, replicas(), "without autoscaling the value counts")
}
