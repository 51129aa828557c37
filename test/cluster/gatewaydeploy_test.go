package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/controlplane"
	statuses "github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/test/kubetest"
)

// runDeployer runs a control plane that deploys gateways, with the rights of deploy/rbac.yaml.
func runDeployer(t *testing.T, c *kubetest.Cluster) *control {
	t.Helper()
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(rights))
	return runControl(t, c, func(o *controlplane.Options) {
		o.Kubernetes.Kubeconfig = c.KubeconfigAs(t, "istio-system", "moonsail")
		o.DeployGateways, o.Webhook.Inject = true, inject.Default()
		require.NoError(t, o.Webhook.Inject.Prepare())
	})
}

// deployedGateway is a Gateway that gets routers. Class and port vary; more is appended to its metadata and spec.
func deployedGateway(class string, port int, metadata, spec string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web%s}
spec: {gatewayClassName: %s, listeners: [{name: http, port: %d, protocol: HTTP}]%s}
`, metadata, class, port, spec)
}

// awaitDeployment waits until a Deployment is as wanted; nil accepts each.
func awaitDeployment(t *testing.T, c *kubetest.Cluster, ns, name string, wanted func(*appsv1.Deployment) error) *appsv1.Deployment {
	t.Helper()
	var out *appsv1.Deployment
	c.Eventually(t, "Deployment "+name, func(ctx context.Context) (err error) {
		out, err = c.Client.AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && wanted != nil {
			err = wanted(out)
		}
		return err
	})
	return out
}

func awaitService(t *testing.T, c *kubetest.Cluster, ns, name string, wanted func(*corev1.Service) error) *corev1.Service {
	t.Helper()
	var out *corev1.Service
	c.Eventually(t, "Service "+name, func(ctx context.Context) (err error) {
		out, err = c.Client.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && wanted != nil {
			err = wanted(out)
		}
		return err
	})
	return out
}

// awaitNone waits until a namespace has none of the objects that Gateways get.
func awaitNone(t *testing.T, c *kubetest.Cluster, ns, name string) {
	t.Helper()
	c.Eventually(t, "nothing is left of "+name, func(ctx context.Context) error {
		var left []string
		for what, get := range map[string]func() (metav1.Object, error){
			"Deployment": func() (metav1.Object, error) {
				return c.Client.AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
			},
			"Service": func() (metav1.Object, error) {
				return c.Client.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{})
			},
			"ServiceAccount": func() (metav1.Object, error) {
				return c.Client.CoreV1().ServiceAccounts(ns).Get(ctx, name, metav1.GetOptions{})
			},
			"HPA": func() (metav1.Object, error) {
				return c.Client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, name, metav1.GetOptions{})
			},
			"PDB": func() (metav1.Object, error) {
				return c.Client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, name, metav1.GetOptions{})
			},
		} {
			switch o, err := get(); {
			case err == nil:
				left = append(left, fmt.Sprintf("%s %+v", what, o.GetManagedFields()))
			case !apierrors.IsNotFound(err):
				return err
			}
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	})
}

func hasPort(port int32) func(*corev1.Service) error {
	return func(s *corev1.Service) error {
		if len(s.Spec.Ports) != 2 || s.Spec.Ports[1].Port != port {
			return fmt.Errorf("ports %v", s.Spec.Ports)
		}
		return nil
	}
}

func imageOf(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

func hasImage(image string) func(*appsv1.Deployment) error {
	return func(d *appsv1.Deployment) error {
		if got := imageOf(d); got != image {
			return errors.New("image " + got)
		}
		return nil
	}
}

// TestGatewaysAreDeployed follows a Gateway from its creation to its end, in a namespace whose Pods must meet the restricted Pod
// Security Standard.
func TestGatewaysAreDeployed(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t, "pod-security.kubernetes.io/enforce=restricted")
	runDeployer(t, c)
	for _, class := range []string{"istio", "moonsail"} {
		awaitConditions(t, c, "", "gatewayclasses", class, statusOf, "Accepted=True/Accepted")
	}
	c.Apply(t, ns, deployedGateway("istio", 80, "", ""))
	d := awaitDeployment(t, c, ns, "web-istio", func(d *appsv1.Deployment) error {
		if d.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%v", d.Status)
		}
		return nil
	})
	require.Equal(t, "istio.io-gateway-controller", d.Labels["gateway.istio.io/managed"])
	require.Equal(t, "web", d.Spec.Template.Labels["gateway.networking.k8s.io/gateway-name"])
	require.Equal(t, "Gateway", d.OwnerReferences[0].Kind)
	require.Equal(t, "web-istio", d.Spec.Template.Spec.ServiceAccountName)
	service := awaitService(t, c, ns, "web-istio", hasPort(80))
	require.Equal(t, corev1.ServiceTypeLoadBalancer, service.Spec.Type)
	o := awaitConditions(t, c, ns, "gateways", "web", statusOf, "Accepted=True/Accepted", "Programmed=False/AddressNotAssigned")
	require.Empty(t, listOf(statusOf(o), "addresses"))

	address := []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`)
	_, err := c.Client.CoreV1().Services(ns).Patch(t.Context(), "web-istio", types.MergePatchType, address, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	o = awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=True/Programmed")
	require.Equal(t, []map[string]any{{"type": "IPAddress", "value": "192.0.2.7"}}, listOf(statusOf(o), "addresses"))

	c.Apply(t, ns, deployedGateway("istio", 8080, ", annotations: {networking.istio.io/service-type: ClusterIP}", ""))
	awaitService(t, c, ns, "web-istio", hasPort(8080))
	awaitGateway(t, c, ns, func(o *unstructured.Unstructured) bool {
		a := listOf(statusOf(o), "addresses")
		return len(a) == 1 && a[0]["type"] == "Hostname" && a[0]["value"] == "web-istio."+ns+".svc.cluster.local"
	})

	c.Apply(t, ns, deployedGateway("moonsail", 8080, "", ""))
	awaitDeployment(t, c, ns, "web-moonsail", nil)
	awaitNone(t, c, ns, "web-istio")
	c.Delete(t, ns, deployedGateway("moonsail", 8080, "", ""))
	awaitNone(t, c, ns, "web-moonsail")
}

// TestObjectsOfGatewaysAreRepaired checks that changed and deleted objects come back, and that an object whose label was removed is
// left to the user.
func TestObjectsOfGatewaysAreRepaired(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	runDeployer(t, c)
	c.Apply(t, ns, deployedGateway("moonsail", 80, "", ""))
	d := awaitDeployment(t, c, ns, "web-moonsail", nil)
	image := imageOf(d)
	foreign := []byte(`{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"istio-proxy","image":"other"}]}}}}`)
	change := func() {
		_, err := c.Client.AppsV1().Deployments(ns).Patch(t.Context(), "web-moonsail", types.StrategicMergePatchType, foreign, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	change()
	d = awaitDeployment(t, c, ns, "web-moonsail", hasImage(image))
	require.EqualValues(t, 3, *d.Spec.Replicas, "the number of replicas is the user's")

	service := awaitService(t, c, ns, "web-moonsail", nil)
	require.NoError(t, c.Client.CoreV1().Services(ns).Delete(t.Context(), "web-moonsail", metav1.DeleteOptions{}))
	awaitService(t, c, ns, "web-moonsail", func(s *corev1.Service) error {
		if s.UID == service.UID {
			return errors.New("the old one")
		}
		return nil
	})

	release := []byte(`{"metadata":{"labels":{"gateway.istio.io/managed":null}}}`)
	_, err := c.Client.AppsV1().Deployments(ns).Patch(t.Context(), "web-moonsail", types.MergePatchType, release, metav1.PatchOptions{})
	require.NoError(t, err)
	change()
	c.Apply(t, ns, deployedGateway("moonsail", 8080, "", ""))
	awaitService(t, c, ns, "web-moonsail", hasPort(8080))
	awaitDeployment(t, c, ns, "web-moonsail", hasImage("other"))
}

// TestParametersOfGateways checks that ConfigMaps change the objects of Gateways, also later.
func TestParametersOfGateways(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	runDeployer(t, c)
	gateway := deployedGateway("moonsail", 80, "", `, infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: web}}`)
	c.Apply(t, ns, gateway)
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Accepted=False/InvalidParameters")
	parameters := func(data string) {
		c.Apply(t, ns, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: "+data)
	}
	parameters(`{horizontalPodAutoscaler: "spec: {maxReplicas: 4}", podDisruptionBudget: "spec: {minAvailable: 1}", service: "spec: {type: ClusterIP}"}`)
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Accepted=True/Accepted", "Programmed=True/Programmed")
	c.Eventually(t, "the autoscaler", func(ctx context.Context) error {
		o, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "web-moonsail", metav1.GetOptions{})
		if err == nil && o.Spec.MaxReplicas != 4 {
			err = errors.New("another number")
		}
		return err
	})
	parameters(`{podDisruptionBudget: "spec: {minAvailable: 1}", service: "spec: {type: ClusterIP}"}`)
	c.Eventually(t, "the autoscaler goes, the budget stays", func(ctx context.Context) error {
		if _, err := c.Client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "web-moonsail", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "web-moonsail", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the autoscaler is there: %w", cmp.Or(err, errors.New("found")))
	})
	replicas := func(n int32) func(*appsv1.Deployment) error {
		return func(d *appsv1.Deployment) error {
			if *d.Spec.Replicas != n {
				return fmt.Errorf("%d replicas", *d.Spec.Replicas)
			}
			return nil
		}
	}
	parameters(`{deployment: "spec: {replicas: 3}", service: "spec: {type: ClusterIP}"}`)
	awaitDeployment(t, c, ns, "web-moonsail", replicas(3))
	parameters(`{horizontalPodAutoscaler: "spec: {minReplicas: 3, maxReplicas: 4}", service: "spec: {type: ClusterIP}"}`)
	c.Eventually(t, "the autoscaler", func(ctx context.Context) error { // it is written after the Deployment
		_, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "web-moonsail", metav1.GetOptions{})
		return err
	})
	d, err := c.Client.AppsV1().Deployments(ns).Get(t.Context(), "web-moonsail", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, replicas(3)(d), "the autoscaler starts with the routers that there are")
	parameters(`{deployment: "spec: {replicas: 2}", service: "spec: {type: ClusterIP}"}`)
	awaitDeployment(t, c, ns, "web-moonsail", replicas(2))
	c.Apply(t, "istio-system", `
apiVersion: v1
kind: ConfigMap
metadata: {name: defaults, labels: {gateway.istio.io/defaults-for-class: moonsail}}
data: {deployment: "metadata: {annotations: {default: 'yes'}}"}`)
	t.Cleanup(func() {
		_ = c.Client.CoreV1().ConfigMaps("istio-system").Delete(context.Background(), "defaults", metav1.DeleteOptions{}) // the cluster may be gone
	})
	awaitDeployment(t, c, ns, "web-moonsail", func(d *appsv1.Deployment) error {
		if d.Annotations["default"] != "yes" {
			return errors.New("without the class's defaults")
		}
		return nil
	})
	parameters(`{daemonSet: ""}`)
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Accepted=False/InvalidParameters", "Programmed=True/Programmed")
}

const foreignDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-moonsail}
spec:
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: app, image: other}]}}
`

// TestObjectsOfOthersAreNotTouched checks that a name that is taken is reported, until it is free.
func TestObjectsOfOthersAreNotTouched(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	runDeployer(t, c)
	c.Apply(t, ns, foreignDeployment)
	c.Apply(t, ns, deployedGateway("moonsail", 80, "", ""))
	o := awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=False/"+statuses.ReasonDeploymentConflict)
	require.Contains(t, fmt.Sprint(statusOf(o)), "Deployment web-moonsail: it was not created for this Gateway: rename or delete it")
	awaitDeployment(t, c, ns, "web-moonsail", hasImage("other"))
	c.Delete(t, ns, foreignDeployment)
	awaitDeployment(t, c, ns, "web-moonsail", func(d *appsv1.Deployment) error {
		if d.Spec.Template.Spec.Containers[0].Name != "istio-proxy" {
			return errors.New("of others")
		}
		return nil
	})
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=False/AddressNotAssigned")
}

// TestTakeoverOfGatewaysFromIstiod checks that objects of istiod stay until the Gateway's label names this control plane. The
// Deployment is one that Istio 1.20 created and a newer istiod updated: its selector cannot change.
func TestTakeoverOfGatewaysFromIstiod(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, deployedGateway("istio", 80, "", ""))
	g, err := c.Dynamic.Resource(gatewayResource("gateways")).Namespace(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	theirs := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web-istio",
		"labels":{"gateway.istio.io/managed":"istio.io-gateway-controller"},
		"ownerReferences":[{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","name":"web","uid":"` + string(g.GetUID()) + `"}]},
		"spec":{"selector":{"matchLabels":{"istio.io/gateway-name":"web"}},
		"template":{"metadata":{"labels":{"gateway.networking.k8s.io/gateway-name":"web","istio.io/gateway-name":"web"}},
		"spec":{"containers":[{"name":"istio-proxy","image":"proxyv2","env":[{"name":"CA_ADDR","value":"istiod"}]}]}}}}`
	force := true
	_, err = c.Client.AppsV1().Deployments(ns).Patch(t.Context(), "web-istio", types.ApplyPatchType, []byte(theirs),
		metav1.PatchOptions{FieldManager: "istio.io/gateway-controller", Force: &force})
	require.NoError(t, err)
	runDeployer(t, c)
	o := awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=False/"+statuses.ReasonDeploymentConflict)
	require.Contains(t, fmt.Sprint(statusOf(o)), "istiod deploys it: to replace istiod, label the Gateway istio.io/rev: default")
	awaitDeployment(t, c, ns, "web-istio", hasImage("proxyv2"))
	c.Apply(t, ns, deployedGateway("istio", 80, ", labels: {istio.io/rev: default}", ""))
	d := awaitDeployment(t, c, ns, "web-istio", func(d *appsv1.Deployment) error {
		text, err := json.Marshal(d)
		if err == nil && (strings.Contains(string(text), "CA_ADDR") || !strings.Contains(string(text), "XDS") && imageOf(d) == "proxyv2") {
			err = fmt.Errorf("%s", text)
		}
		return err
	})
	require.Equal(t, inject.Default().Image, imageOf(d))
	require.Equal(t, map[string]string{"istio.io/gateway-name": "web"}, d.Spec.Selector.MatchLabels)
	require.Equal(t, "web", d.Spec.Template.Labels["istio.io/gateway-name"])
	awaitService(t, c, ns, "web-istio", hasPort(80))
}

// TestAnotherControlPlaneDeploysGateways checks that the next leader continues.
func TestAnotherControlPlaneDeploysGateways(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	first := runDeployer(t, c)
	c.Apply(t, ns, deployedGateway("moonsail", 80, "", ""))
	awaitService(t, c, ns, "web-moonsail", hasPort(80))
	runDeployer(t, c)
	first.stop()
	c.Apply(t, ns, deployedGateway("moonsail", 8080, "", ""))
	awaitService(t, c, ns, "web-moonsail", hasPort(8080))
}
