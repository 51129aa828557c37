package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/controlplane"
	statuses "github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/test/kubetest"
)

// webhookFor makes the API server call a control plane about Istio's objects of one namespace. The test removes it.
func webhookFor(t *testing.T, c *kubetest.Cluster, ns, addr string) string {
	t.Helper()
	url, none, fail := "https://"+addr+"/validate", registrationv1.SideEffectClassNone, registrationv1.Fail
	hooks := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(t.Context(), &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []registrationv1.ValidatingWebhook{{
			Name:         "validate.moonsail.dev",
			ClientConfig: registrationv1.WebhookClientConfig{URL: &url},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update},
				Rule:       registrationv1.Rule{APIGroups: []string{"networking.istio.io"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			FailurePolicy:           &fail,
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), ns, metav1.DeleteOptions{}) }) // the cluster may be gone
	return ns
}

// heard collects the API server's warnings.
type heard struct{ warnings []string }

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _, text string) { h.warnings = append(h.warnings, text) }

var webhooks atomic.Uint32

// webhookAddr is an address where nothing else listens, in this or a concurrent run: the kernel assigns no ports below
// 32768.
func webhookAddr() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.83.%d.%d:%d", pid/250%250, pid%250+1, 20000+webhooks.Add(1))
}

func TestWebhookRefusesAndWarns(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	addr := webhookAddr()
	name := webhookFor(t, c, ns, addr)
	for range 2 { // each adds its certificate to the other's; one of them is called
		runControl(t, c, func(o *controlplane.Options) {
			o.Status = false
			o.Webhook.Addr, o.Webhook.Config = addr, name
			addr = "127.0.0.1:0"
		})
	}
	c.Apply(t, ns, web)
	c.Eventually(t, "a refusal by the webhook", func(ctx context.Context) error {
		err := c.TryApply(ctx, ns, route(badHeader))
		if err == nil {
			return fmt.Errorf("it was let pass")
		}
		for _, want := range []string{"validate.moonsail.dev", "spec.http[0].headers.request.set", "no header"} {
			if !strings.Contains(err.Error(), want) {
				return err
			}
		}
		return nil
	})

	config := rest.CopyConfig(c.REST(t))
	said := &heard{}
	config.WarningHandler = said
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	lost := `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: lost}
spec: {hosts: [web], http: [{route: [{destination: {host: nowhere}}]}]}
`
	create := func(resource, text string) string {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
		gvr := schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: resource}
		said.warnings = nil
		_, err := client.Resource(gvr).Namespace(ns).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		return strings.Join(said.warnings, "\n")
	}
	require.Contains(t, create("virtualservices", lost), "nowhere")
	c.Eventually(t, "no warning of a service that is there", func(context.Context) error { // the webhook sees it a little later
		text := create("destinationrules", "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: fine}\nspec: {host: web}\n")
		if text != "" {
			return errors.New(text)
		}
		return nil
	})
}

// TestManifestsGiveWebhookRights checks that the shipped manifests give the rights that the webhook needs.
func TestManifestsGiveWebhookRights(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	read := func(file string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
		require.NoError(t, err)
		return string(b)
	}
	c.Apply(t, "", read("rbac.yaml"))
	// Nothing serves that Service here, so that the API server must not call it.
	before, rest, found := strings.Cut(read("webhook.yaml"), "  failurePolicy: Ignore\n")
	require.True(t, found)
	c.Apply(t, "", before+"  failurePolicy: Ignore\n  namespaceSelector: {matchLabels: {no: namespace}}\n"+rest)
	hooks := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), "moonsail-validator", metav1.DeleteOptions{}) }) // the cluster may be gone
	runControl(t, c, func(o *controlplane.Options) {
		o.Kubernetes.Kubeconfig = c.KubeconfigAs(t, "istio-system", "moonsail")
		o.Webhook.Addr, o.Webhook.Config = "127.0.0.1:0", "moonsail-validator"
	})
	c.Apply(t, ns, web+"---"+route(badHeader))
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)
	c.Eventually(t, "a CA bundle", func(ctx context.Context) error {
		config, err := hooks.Get(ctx, "moonsail-validator", metav1.GetOptions{})
		if err == nil && !strings.Contains(string(config.Webhooks[0].ClientConfig.CABundle), "BEGIN CERTIFICATE") {
			err = errors.New("it is empty")
		}
		return err
	})
}
