package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/test/kubetest"
)

// shipped is deploy/injector.yaml for one namespace, with an address of this machine. The test removes it.
func shipped(t *testing.T, c *kubetest.Cluster, ns, addr string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "injector.yaml"))
	require.NoError(t, err)
	config := &registrationv1.MutatingWebhookConfiguration{}
	require.NoError(t, yaml.UnmarshalStrict(text, config))
	require.Len(t, config.Webhooks, 4)
	url := "https://" + addr + "/inject"
	config.Name = ns
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		w.ClientConfig = registrationv1.WebhookClientConfig{URL: &url}
		w.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: ns}
	}
	hooks := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err = hooks.Create(t.Context(), config, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), ns, metav1.DeleteOptions{}) }) // the cluster may be gone
	return ns
}

const injected = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: app, image: web:1, ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {path: /ready, port: http}}}
`

const ownPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: own%s}, annotations: {%s}}
spec: {containers: [{name: app, image: own:1}]}
`

// runInjector runs a control plane that injects Pods of a namespace, with the shipped webhook, and waits until the API
// server calls it.
func runInjector(t *testing.T, c *kubetest.Cluster, ns string) {
	t.Helper()
	addr := webhookAddr()
	name := shipped(t, c, ns, addr)
	runControl(t, c, func(o *controlplane.Options) {
		o.Status = false
		o.Webhook.Addr, o.Webhook.InjectConfig, o.Webhook.Inject = addr, name, inject.Default()
		require.NoError(t, o.Webhook.Inject.Prepare())
	})
	c.Eventually(t, "Pods are injected", func(ctx context.Context) error {
		trial := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
		o, err := c.Client.CoreV1().Pods(ns).Create(ctx, trial, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(o.Spec.InitContainers) == 0 {
			err = errors.New("they are not")
		}
		return err
	})
}

// TestInjection checks that a real API server injects Pods of a Deployment unless they opt out, and refuses a Pod with
// an invalid annotation.
func TestInjection(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t, "istio-injection=enabled")
	runInjector(t, c, ns)
	c.Apply(t, ns, injected)
	var pod corev1.Pod
	c.Eventually(t, "a Pod of the Deployment", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is none")
		}
		if err == nil {
			pod = list.Items[0]
		}
		return err
	})
	require.Equal(t, []string{"istio-init", "istio-proxy"}, names(pod.Spec.InitContainers))
	proxy := pod.Spec.InitContainers[1]
	require.Equal(t, corev1.ContainerRestartPolicyAlways, *proxy.RestartPolicy)
	require.Equal(t, "istio", pod.Labels["security.istio.io/tlsMode"])
	require.Equal(t, "/app-health/app/readyz", pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Path)
	env := map[string]string{}
	for _, e := range proxy.Env {
		env[e.Name] = e.Value
	}
	require.Equal(t, "kubernetes://apis/apps/v1/namespaces/"+ns+"/deployments/web", env["ISTIO_META_OWNER"])
	require.Contains(t, env["ISTIO_KUBE_APP_PROBERS"], `"port":8080`)

	c.Apply(t, ns, fmt.Sprintf(ownPod, "without", `, sidecar.istio.io/inject: "false"`, ""))
	own, err := c.Client.CoreV1().Pods(ns).Get(t.Context(), "without", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, own.Spec.InitContainers)
	require.Empty(t, own.Annotations["sidecar.istio.io/status"])

	err = c.TryApply(t.Context(), ns, fmt.Sprintf(ownPod, "wrong", "", "sidecar.istio.io/proxyCPU: much"))
	require.ErrorContains(t, err, `annotation sidecar.istio.io/proxyCPU: invalid quantity "much"`)
}

func names(list []corev1.Container) []string {
	var out []string
	for i := range list {
		out = append(out, list[i].Name)
	}
	return out
}

// TestManifestsGiveInjectionRights checks that the shipped manifests are valid and give the rights that injection needs.
func TestManifestsGiveInjectionRights(t *testing.T) {
	c := kubetest.Shared(t)
	read := func(file string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
		require.NoError(t, err)
		return string(b)
	}
	c.Apply(t, "", read("rbac.yaml"))
	// Nothing serves the Service here, so that the API server must not call it.
	c.Apply(t, "", strings.ReplaceAll(read("injector.yaml"), "  failurePolicy: Fail\n", "  failurePolicy: Ignore\n"))
	hooks := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), "moonsail-injector", metav1.DeleteOptions{}) }) // the cluster may be gone
	runControl(t, c, func(o *controlplane.Options) {
		o.Status = false
		o.Kubernetes.Kubeconfig = c.KubeconfigAs(t, "istio-system", "moonsail")
		o.Webhook.Addr, o.Webhook.InjectConfig, o.Webhook.Inject = "127.0.0.1:0", "moonsail-injector", inject.Default()
		require.NoError(t, o.Webhook.Inject.Prepare())
	})
	c.Eventually(t, "a CA bundle", func(ctx context.Context) error {
		config, err := hooks.Get(ctx, "moonsail-injector", metav1.GetOptions{})
		for i := 0; err == nil && i < len(config.Webhooks); i++ {
			if !strings.Contains(string(config.Webhooks[i].ClientConfig.CABundle), "BEGIN CERTIFICATE") {
				err = fmt.Errorf("that of %s is empty", config.Webhooks[i].Name)
			}
		}
		return err
	})
	c.Apply(t, "", read("control-plane.yaml"))
}
