package cluster

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/propagation"
	"github.com/moonsail/moonsail/test/kubetest"
)

// TestRolloutIsFollowed runs the lab's scenario with Deployments in small: a deployment of 5
// pods restarts while another is scaled to 2. Each of the pods that go is followed to the
// last of 10 proxies, and in the end all proxies have the endpoints that the API server has.
func TestRolloutIsFollowed(t *testing.T) {
	c := kubetest.Start(t)
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(asMoonsail, "1")
	o := propagation.QuickOptions()
	o.Scenarios, o.Binary = []string{"expedia"}, []string{self}
	o.Source, o.Kubeconfig = propagation.SourceKube, c.Kubeconfig()
	o.Rollout = propagation.Rollout{Deployments: 2, Pods: 5, Proxies: 10}
	report, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, report.Results, 1)
	r := report.Results[0]
	require.Equal(t, 5+3, r.Subject.Changes, "pods that restarted and that were scaled away")
	require.Equal(t, r.Subject.Changes, r.Subject.Last.N, "each was followed to its end")
	require.Equal(t, 10, r.State.Proxies)
	require.Equal(t, 5+2, r.State.Decoded, "endpoints that were compared")
	require.Zero(t, r.State.Wrong, "%v", r.State.First)
	require.Len(t, r.Charts, 3)
	for _, line := range r.Charts[1].Lines {
		require.NotEmpty(t, line.Points, line.Name)
	}
}
