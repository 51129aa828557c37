package webhook

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// injection answers one review, and returns its counted result.
func injection(t testing.TB, path, body string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	config := inject.Default()
	require.NoError(t, config.Prepare())
	counted := ""
	handler := Routes(nil, &Injector{Config: config, Count: func(r string) { counted = r }, Log: slog.New(slog.DiscardHandler)})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w, counted
}

func podReview(pod string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},
"operation":"CREATE","namespace":"shop","object":` + pod + `}}`
}

func answered(t testing.TB, w *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var review admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
	require.EqualValues(t, "u", review.Response.UID)
	return review.Response
}

const plainPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:1","resources":{}}]}}`

func TestInjection(t *testing.T) {
	w, counted := injection(t, InjectPath+"/cluster/c-1/net/n-1", podReview(plainPod))
	r := answered(t, w)
	require.True(t, r.Allowed)
	require.Equal(t, resultInjected, counted)
	require.Equal(t, admissionv1.PatchTypeJSONPatch, *r.PatchType)
	patch, err := jsonpatch.DecodePatch(r.Patch)
	require.NoError(t, err)
	text, err := patch.Apply([]byte(plainPod))
	require.NoError(t, err)
	pod := &corev1.Pod{}
	require.NoError(t, json.Unmarshal(text, pod))
	require.Empty(t, pod.Namespace, "the namespace is the API server's to say")
	require.Len(t, pod.Spec.InitContainers, 2)
	require.Equal(t, "web", pod.Labels["service.istio.io/canonical-name"])
	env := map[string]string{}
	for _, e := range pod.Spec.InitContainers[1].Env {
		env[e.Name] = e.Value
	}
	require.Equal(t, "c-1", env["ISTIO_META_CLUSTER_ID"])
	require.Equal(t, "n-1", env["ISTIO_META_NETWORK"])
	require.Equal(t, "kubernetes://apis/v1/namespaces/shop/pods/web", env["ISTIO_META_OWNER"])

	w, _ = injection(t, InjectPath+"/cluster/c-1/net/n-1", podReview(string(text)))
	require.Nil(t, answered(t, w).Patch, "there is nothing to do a second time")
}

func TestNoInjection(t *testing.T) {
	for name, pod := range map[string]string{
		"not wanted":   `{"metadata":{"labels":{"sidecar.istio.io/inject":"false"}},"spec":{}}`,
		"host network": `{"spec":{"hostNetwork":true}}`,
	} {
		w, counted := injection(t, InjectPath, podReview(pod))
		r := answered(t, w)
		require.True(t, r.Allowed, name)
		require.Nil(t, r.Patch, name)
		require.Equal(t, resultSkipped, counted, name)
	}
	other := strings.Replace(podReview(plainPod), `"kind":"Pod"`, `"kind":"Deployment"`, 1)
	w, counted := injection(t, InjectPath, other)
	require.Nil(t, answered(t, w).Patch)
	require.Equal(t, resultSkipped, counted)
}

func TestInjectionSaysWhatIsWrong(t *testing.T) {
	w, counted := injection(t, InjectPath, podReview(`{"metadata":{"annotations":{"sidecar.istio.io/proxyCPU":"much"}}}`))
	r := answered(t, w)
	require.False(t, r.Allowed)
	require.Contains(t, r.Result.Message, `annotation sidecar.istio.io/proxyCPU: invalid quantity "much"`)
	require.Equal(t, resultRefused, counted)
	w, _ = injection(t, InjectPath, podReview(`{"spec":1}`))
	require.False(t, answered(t, w).Allowed)

	for path, body := range map[string]string{InjectPath + "/other/x": podReview(plainPod), InjectPath + "/cluster": podReview(plainPod)} {
		w, counted = injection(t, path, body)
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Equal(t, resultUnreadable, counted)
	}
	w, _ = injection(t, InjectPath, "{}")
	require.Equal(t, http.StatusBadRequest, w.Code)
}

// FuzzInjector checks that every body gets a valid review as its answer.
func FuzzInjector(f *testing.F) {
	f.Add([]byte(podReview(plainPod)))
	f.Add([]byte(podReview(`{"metadata":{"annotations":{"sidecar.istio.io/status":"{}"}},"spec":{"containers":[{"name":"istio-proxy"}]}}`)))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w, counted := injection(t, InjectPath, string(body))
		require.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body)
		require.NotEmpty(t, counted)
		if w.Code != http.StatusOK {
			return
		}
		var review admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
		require.NotNil(t, review.Response)
		if review.Response.Patch != nil {
			_, err := jsonpatch.DecodePatch(review.Response.Patch)
			require.NoError(t, err, string(bytes.TrimSpace(review.Response.Patch)))
		}
	})
}

// TestInjectionUsesProxyConfigs uses those that exist when the Pod is made.
func TestInjectionUsesProxyConfigs(t *testing.T) {
	st, config := store.New(), inject.Default()
	require.NoError(t, config.Prepare())
	h := &Handler{Snapshot: st.Snapshot, RootNamespace: "istio-system"}
	i := &Injector{Config: config, ProxyConfigs: h.proxyConfigs, Count: func(string) {}, Log: slog.New(slog.DiscardHandler)}
	patch := func() string {
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest(http.MethodPost, InjectPath, strings.NewReader(podReview(plainPod))))
		return string(answered(t, w).Patch)
	}
	require.NotContains(t, patch(), "--concurrency")
	threads := int32(3)
	web := &model.ProxyConfig{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindProxyConfig, Namespace: "shop", Name: "web"}},
		Selector: map[string]string{"app": "web"}, Concurrency: &threads,
	}
	mesh := &model.MeshConfig{
		Meta:          model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: "istio"}},
		ProxyDefaults: `{"proxyMetadata":{"OF_THE_MESH":"x"}}`,
	}
	st.Apply([]store.Event{{Key: web.Key, Object: web}, {Key: mesh.Key, Object: mesh}})
	require.Contains(t, patch(), "--concurrency=3")
	require.Contains(t, patch(), "OF_THE_MESH")

	const atLoopback = "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION"
	require.NotContains(t, patch(), atLoopback)
	local, yes := *mesh, true
	local.ResourceVersion, local.LocalInbound = "2", &yes
	st.Apply([]store.Event{{Key: local.Key, Object: &local}})
	require.Contains(t, patch(), atLoopback)
}
