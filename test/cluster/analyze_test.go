package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/kubetest"
)

// analyze runs "moonsail analyze" on a cluster.
func analyze(t *testing.T, kubeconfig, level string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.NewRootCommand()
	cmd.SetArgs([]string{"analyze", "--kubeconfig", kubeconfig, "--level", level})
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestAnalyzeACluster(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, shop)
	out, err := analyze(t, c.Kubeconfig(), "error")
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
	out, err = analyze(t, c.Kubeconfig(), "error")
	require.Equal(t, terminal.ExitCode(1), err)
	require.Contains(t, out, "VirtualService/"+ns+"/web: spec.http[0].route[0].destination.host: service wbe."+ns+".svc.cluster.local: not found")
	require.Contains(t, out, "VirtualService/"+ns+"/broken: spec.http[0].match[0].uri.regex")
	require.Contains(t, out, "2 errors")
}

// TestAnalyzeNamesAccountsThatMayNotRead checks that analyze names the accounts that may not read a Secret, also if none may.
func TestAnalyzeNamesAccountsThatMayNotRead(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	secret, _ := secretOf(t, "api-client")
	c.Apply(t, ns, credentialed+"\n---\n"+secret)
	out, _ := analyze(t, c.Kubeconfig(), "info") // other tests' namespaces may have errors
	require.Contains(t, out, "DestinationRule/"+ns+"/api", out)
	require.Contains(t, out, "service accounts other, reader may not read Secret api-client")
	c.Apply(t, ns, mayReadSecret)
	c.Eventually(t, "the right is seen", func(context.Context) error {
		if out, _ = analyze(t, c.Kubeconfig(), "info"); !strings.Contains(out, "service accounts other may not read Secret api-client") {
			return errors.New(out)
		}
		return nil
	})
}

// TestAnalyzeWithFewRights checks that analyze names the rights that a user lacks, and the Secrets that it did not
// analyze if the user may read all but Secrets.
func TestAnalyzeWithFewRights(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(rights))
	c.Apply(t, ns, gatewayWithSecret(ns))
	_, err = analyze(t, c.KubeconfigAs(t, ns, "stranger"), "info")
	var told *terminal.UserError
	require.ErrorAs(t, err, &told)
	require.Contains(t, told.Next, "the rights of the ClusterRole moonsail")
	out, _ := analyze(t, c.KubeconfigAs(t, "istio-system", "moonsail"), "info") // other tests' namespaces may have errors
	require.Contains(t, out, "Secret/"+ns+"/api-client: is not read: secrets \"api-client\" is forbidden")
}
