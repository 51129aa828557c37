package kubetest_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/test/kubetest"
)

// TestCustomResources applies a valid object of several types, and one with a mistake that the type's schema must
// refuse.
func TestCustomResources(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	for _, test := range []struct{ name, kind, spec, bad, refused string }{
		{
			"VirtualService", "networking.istio.io/v1",
			"{hosts: [web], http: [{route: [{destination: {host: web}, weight: 100}]}]}",
			"{hosts: [web], http: [{route: [{destination: {host: web}, weight: heavy}]}]}", "weight",
		},
		{
			"DestinationRule", "networking.istio.io/v1",
			"{host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}",
			"{host: web, trafficPolicy: {tls: {mode: SOMEWHAT}}}", "spec.trafficPolicy.tls.mode",
		},
		{
			"Sidecar", "networking.istio.io/v1beta1",
			"{egress: [{hosts: ['./*']}]}",
			"{egress: [{captureMode: NONE}]}", "spec.egress[0].hosts",
		},
		{
			"PeerAuthentication", "security.istio.io/v1",
			"{mtls: {mode: STRICT}}",
			"{mtls: {mode: LAX}}", "spec.mtls.mode",
		},
		{
			"Telemetry", "telemetry.istio.io/v1",
			"{accessLogging: [{providers: [{name: envoy}]}]}",
			"{accessLogging: [{providers: [{name: ''}]}]}", "spec.accessLogging[0].providers[0].name",
		},
		{
			"HTTPRoute", "gateway.networking.k8s.io/v1",
			"{parentRefs: [{kind: Service, group: '', name: web}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
			"{rules: [{backendRefs: [{name: web, port: 70000}]}]}", "spec.rules[0].backendRefs[0].port",
		},
		{
			"GRPCRoute", "gateway.networking.k8s.io/v1",
			"{rules: [{matches: [{method: {service: shop.Reviews}}]}]}",
			"{rules: [{matches: [{method: {}}]}]}", "spec.rules[0].matches[0].method",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\nspec: ", test.kind, test.name)
			c.Apply(t, ns, object+test.spec)
			err := c.TryApply(t.Context(), ns, object+test.bad)
			require.Error(t, err)
			require.ErrorContains(t, err, test.refused)
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err), "%v", err)
		})
	}
}

// TestGatewayAPIType creates an object with the module's Go type.
func TestGatewayAPIType(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	gw := gatewayv1.Gateway{
		TypeMeta:   metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway"},
		ObjectMeta: metav1.ObjectMeta{Name: "front"},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "moonsail",
			Listeners:        []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		},
	}
	b, err := json.Marshal(gw)
	require.NoError(t, err)
	c.Apply(t, ns, string(b))
	gw.Spec.Listeners = append(gw.Spec.Listeners, gw.Spec.Listeners[0])
	b, err = json.Marshal(gw)
	require.NoError(t, err)
	require.Error(t, c.TryApply(t.Context(), ns, string(b)), "two listeners of one name")
}

// podToken returns a token for an audience that is bound to the pod web-1.
func podToken(t *testing.T, c *kubetest.Cluster, ns, audience string) string {
	t.Helper()
	pod, err := c.Client.CoreV1().Pods(ns).Get(t.Context(), "web-1", metav1.GetOptions{})
	require.NoError(t, err)
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		req.Spec.Audiences = []string{audience}
	}
	got, err := c.Client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "default", req, metav1.CreateOptions{})
	require.NoError(t, err)
	return got.Status.Token
}

func review(ctx context.Context, c *kubetest.Cluster, token, audience string) (authenticationv1.TokenReviewStatus, error) {
	r, err := c.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, err
	}
	return r.Status, nil
}

func TestTokenReview(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, fmt.Sprintf(webPod, ""))
	token := podToken(t, c, ns, "istio-ca")

	got, err := review(t.Context(), c, token, "istio-ca")
	require.NoError(t, err)
	require.True(t, got.Authenticated, got.Error)
	require.Equal(t, []string{"istio-ca"}, got.Audiences)
	require.Equal(t, "system:serviceaccount:"+ns+":default", got.User.Username)
	require.Equal(t, authenticationv1.ExtraValue{"web-1"}, got.User.Extra["authentication.kubernetes.io/pod-name"])

	got, err = review(t.Context(), c, token, "another")
	require.NoError(t, err)
	require.False(t, got.Authenticated, "the token is for istio-ca alone")
}

// withToken returns a client that presents a token, or nothing.
func withToken(t *testing.T, c *kubetest.Cluster, token string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(c.REST(t))
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func TestServiceAccountsHaveTheirRights(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, fmt.Sprintf(webPod, ""))
	list := func(token string) error {
		_, err := withToken(t, c, token).CoreV1().Services(ns).List(t.Context(), metav1.ListOptions{})
		return err
	}
	require.True(t, apierrors.IsUnauthorized(list("")), "anonymous requests are refused")
	require.True(t, apierrors.IsUnauthorized(list(podToken(t, c, ns, "istio-ca"))), "a token for others is none for the API server")
	token := podToken(t, c, ns, "")
	require.True(t, apierrors.IsForbidden(list(token)))
	c.Apply(t, ns, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: view}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: default, namespace: %s}]
`, ns))
	c.Eventually(t, "the right to list", func(context.Context) error { return list(token) })
}

// TestValidatingWebhook checks that a webhook can refuse the ConfigMaps of one namespace.
func TestValidatingWebhook(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t, "refused=yes")
	server := httptest.NewUnstartedServer(http.HandlerFunc(refuse))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	url, none := server.URL+"/validate", registrationv1.SideEffectClassNone
	hook := &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []registrationv1.ValidatingWebhook{{
			Name:         "refuse.moonsail.dev",
			ClientConfig: registrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"refused": "yes"}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	hooks := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), ns, metav1.DeleteOptions{}) })
	c.Eventually(t, "a refusal", func(ctx context.Context) error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
		_, err := c.Client.CoreV1().ConfigMaps(ns).Create(ctx, cm, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("it was not refused by the webhook: %w", err)
		}
		require.ErrorContains(t, err, "not today")
		return nil
	})
}

// refuse denies every AdmissionReview.
func refuse(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{
		UID:    review.Request.UID,
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not today"},
	}
	review.Request.Object = runtime.RawExtension{}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server's call fails then
}
