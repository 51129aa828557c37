package cluster

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/test/kubetest"
)

// analyze runs "moonsail analyze" on a cluster.
func analyze(t *testing.T, c *kubetest.Cluster) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.NewRootCommand()
	cmd.SetArgs([]string{"analyze", "--kubeconfig", c.Kubeconfig(), "--level", "error"})
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestAnalyzeACluster(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, shop)
	out, err := analyze(t, c)
	require.NoError(t, err, out)
	require.Contains(t, out, c.Server())

	c.Apply(t, ns, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec: {hosts: [web], http: [{route: [{destination: {host: wbe}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broken}
spec: {hosts: [a.example.com], http: [{match: [{uri: {regex: "("}}], route: [{destination: {host: web}}]}]}
`)
	out, err = analyze(t, c)
	require.Equal(t, cli.ExitCode(1), err)
	require.Contains(t, out, "VirtualService/"+ns+"/web: spec.http[0].route[0].destination.host: there is no service wbe")
	require.Contains(t, out, "VirtualService/"+ns+"/broken: spec.http[0].match[0].uri.regex")
	require.Contains(t, out, "2 errors")
}
