package kube

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// recordingServer answers requests with an object as JSON, and records their lines.
func recordingServer(t *testing.T, status int, answer string) (c *Client, requests *[]string) {
	t.Helper()
	requests = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*requests = append(*requests, fmt.Sprintf("%s %s %s", r.Method, r.URL, body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return &Client{config: &rest.Config{Host: s.URL}, http: s.Client()}, requests
}

func TestAPIOfNamespacedObjects(t *testing.T) {
	c, requests := recordingServer(t, http.StatusOK, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"key","resourceVersion":"7"},"data":{"a":"Yg=="}}`)
	secrets, err := c.secrets()
	require.NoError(t, err)
	got, err := secrets.Get(t.Context(), "shop", "key")
	require.NoError(t, err)
	require.Equal(t, "b", string(got.Data["a"]))
	require.Equal(t, "7", got.ResourceVersion)
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "key"}}
	_, err = secrets.Create(t.Context(), object)
	require.NoError(t, err)
	_, err = secrets.Update(t.Context(), object)
	require.NoError(t, err)
	_, err = secrets.Merge(t.Context(), "shop", "key", []byte(`{"data":{}}`))
	require.NoError(t, err)
	require.Len(t, *requests, 4)
	require.Regexp(t, `^GET /api/v1/namespaces/shop/secrets/key $`, (*requests)[0])
	require.Regexp(t, `^POST /api/v1/namespaces/shop/secrets\?fieldManager=moonsail {"kind":"Secret","apiVersion":"v1"`, (*requests)[1])
	require.Regexp(t, `^PUT /api/v1/namespaces/shop/secrets/key\?fieldManager=moonsail {"kind":"Secret"`, (*requests)[2])
	require.Equal(t, `PATCH /api/v1/namespaces/shop/secrets/key?fieldManager=moonsail {"data":{}}`, (*requests)[3])
}

// TestAPIOfClusterObjects checks requests for objects without a namespace, which client-go refuses to send with an
// empty one.
func TestAPIOfClusterObjects(t *testing.T) {
	c, requests := recordingServer(t, http.StatusOK, `{"kind":"MutatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"injector"},"webhooks":[{"name":"a"}]}`)
	api, err := NewAPI[registrationv1.MutatingWebhookConfiguration](c,
		registrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), registrationv1.AddToScheme)
	require.NoError(t, err)
	got, err := api.Get(t.Context(), "", "injector")
	require.NoError(t, err)
	require.Len(t, got.Webhooks, 1)
	_, err = api.Update(t.Context(), got)
	require.NoError(t, err)
	require.Regexp(t, `^GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/injector $`, (*requests)[0])
	require.Regexp(t, `^PUT /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/injector\?fieldManager=moonsail {`, (*requests)[1])
}

// TestNodeOfAgent checks the request of a CNI plugin's agent for its node.
func TestNodeOfAgent(t *testing.T) {
	c, requests := recordingServer(t, http.StatusOK, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","labels":{"mesh":"true"}}}`)
	a := &NodeAgent{Node: "n1"}
	require.NoError(t, a.Connect(c))
	node, err := a.OwnNode(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"mesh": "true"}, node.Labels)
	require.Equal(t, []string{"GET /api/v1/nodes/n1 "}, *requests)
}

func TestTokenReview(t *testing.T) {
	c, requests := recordingServer(t, http.StatusCreated, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"system:serviceaccount:shop:web"}}}`)
	ask, err := c.TokenReviews()
	require.NoError(t, err)
	got, err := ask(t.Context(), "token", "istio-ca")
	require.NoError(t, err)
	require.Equal(t, TokenReview{Authenticated: true, Username: "system:serviceaccount:shop:web"}, got)
	require.Regexp(t, `^POST /apis/`+authenticationv1.GroupName+`/v1/tokenreviews\?`, (*requests)[0])
	require.Contains(t, (*requests)[0], `"spec":{"token":"token","audiences":["istio-ca"]}`)
}

func TestAPIReturnsStatusErrors(t *testing.T) {
	c, _ := recordingServer(t, http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
	configMaps, err := c.configMaps()
	require.NoError(t, err)
	got, err := configMaps.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "roots"}})
	require.True(t, apierrors.IsConflict(err))
	require.Nil(t, got)
}
