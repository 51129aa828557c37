package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/test/kubetest"
)

// page returns a debug page's status and body.
func page(ctx context.Context, addr, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// TestReadyWhenWebhookIsTrusted checks that a control plane is ready when the API server trusts its webhook. If its certificate
// cannot be written, the control plane must be ready all the same and report the reason.
func TestReadyWhenWebhookIsTrusted(t *testing.T) {
	c := kubetest.Shared(t)
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(rights))
	ns := c.Namespace(t, "istio-injection=enabled")
	own := shipped(t, c, ns, webhookAddr())
	hooks := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	for name, tc := range map[string]struct {
		config, account, problem string
	}{
		"trusted":   {own, "", ""},
		"not there": {"not-installed", "", "moonsail upgrade"},
		"no rights": {own, "moonsail", "moonsail upgrade"}, // which are for one webhook configuration only
	} {
		t.Run(name, func(t *testing.T) {
			pages := make(chan string, 1)
			runControl(t, c, func(o *controlplane.Options) {
				o.Status, o.HTTPAddr = false, "127.0.0.1:0"
				if tc.account != "" {
					o.Kubernetes.Kubeconfig = c.KubeconfigAs(t, "istio-system", tc.account)
				}
				o.Webhook.Addr, o.Webhook.InjectConfig, o.Webhook.Inject = "127.0.0.1:0", tc.config, inject.Default()
				require.NoError(t, o.Webhook.Inject.Prepare())
				listening := o.Listening
				o.Listening = func(xds, http net.Addr) { pages <- http.String(); listening(xds, http) }
			})
			addr := <-pages
			c.Eventually(t, "ready", func(ctx context.Context) error {
				code, body, err := page(ctx, addr, "/ready")
				if err == nil && code != http.StatusOK {
					err = fmt.Errorf("%d: %s", code, body)
				}
				return err
			})
			if tc.problem == "" {
				config, err := hooks.Get(t.Context(), own, metav1.GetOptions{})
				require.NoError(t, err)
				require.NotEmpty(t, config.Webhooks)
				for _, w := range config.Webhooks {
					require.Contains(t, string(w.ClientConfig.CABundle), "BEGIN CERTIFICATE", "written before ready")
				}
			}
			c.Eventually(t, "what is wrong", func(ctx context.Context) error {
				_, body, err := page(ctx, addr, "/debug/problems")
				if err == nil && strings.Contains(body, "certificate not written") != (tc.problem != "") || !strings.Contains(body, tc.problem) {
					err = fmt.Errorf("problems: %s", body)
				}
				return err
			})
		})
	}
}
