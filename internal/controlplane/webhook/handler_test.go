package webhook

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handlerOf returns a handler with some other objects.
func handlerOf(t testing.TB, docs ...string) (*Handler, map[string]int) {
	t.Helper()
	st, counted := store.New(), map[string]int{}
	var events []store.Event
	for _, doc := range docs {
		o, problems := config.Decoder{}.FromYAML([]byte(doc))
		require.Empty(t, problems)
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	st.Apply(events)
	return &Handler{
		Decoder: config.Decoder{Domain: model.DefaultMesh().Domain, Revision: model.DefaultRevision}, Snapshot: st.Snapshot,
		Count: func(result string) { counted[result]++ }, Log: slog.New(slog.DiscardHandler),
	}, counted
}

func ask(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

const web = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{name: http, port: 80}], selector: {app: web}}}`

// reviewOf returns a review of a VirtualService with a spec and further metadata.
func reviewOf(operation, meta, spec string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","operation":"` + operation + `",
		"kind":{"group":"networking.istio.io","version":"v1","kind":"VirtualService"},"namespace":"shop","object":{
		"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"web","namespace":"shop"` + meta + `},"spec":` + spec + `}}}`
}

func TestReviews(t *testing.T) {
	const good, bad = `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`, `{"hosts":["web"],"http":[{}]}`
	tests := []struct {
		name, body string
		allowed    bool
		refusal    []string // in the message
		warning    string   // empty: none
	}{
		{"a good one", reviewOf("CREATE", "", good), true, nil, ""},
		{"an update that is good", reviewOf("UPDATE", "", good), true, nil, ""},
		{"a bad one", reviewOf("CREATE", "", bad), false, []string{"spec.http[0]", " [MS1"}, ""},
		{"a warning", reviewOf("CREATE", "", `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"nowhere"}}]}]}`), true, nil, "[MS1201]"},
		{"two mistakes", reviewOf("UPDATE", "", `{"hosts":["web"],"http":[{},{"route":[{"destination":{}}]}]}`), false,
			[]string{"spec.http[0]", "; spec.http[1].route[0].destination"}, ""},
		{"no type fits", reviewOf("CREATE", "", `{"hosts":"web"}`), false, []string{"spec.hosts", "list"}, ""},
		{"no object", reviewOf("CREATE", "", `7`), false, []string{"spec"}, ""},
		{"a bad one that goes", reviewOf("UPDATE", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`, bad), true, nil, ""},
		{"a bad one of which nothing is asked", reviewOf("DELETE", "", bad), true, nil, ""},
		{"one that does not fit", reviewOf("CREATE", "", `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"nowhere"}}]}]}`),
			true, nil, "nowhere"},
		{"a bad one of this revision", reviewOf("CREATE", `,"labels":{"istio.io/rev":"default"}`, bad), false, []string{"spec.http[0]"}, ""},
		{"a bad one of another", reviewOf("CREATE", `,"labels":{"istio.io/rev":"canary"}`, bad), true, nil, ""},
		{"of another API group", strings.ReplaceAll(reviewOf("CREATE", "", bad), "networking.istio.io", "example.com"), true, nil, ""},
		{"a kind that has no effect", strings.ReplaceAll(reviewOf("CREATE", "", `{}`), "VirtualService", "EnvoyFilter"), true, nil, "no effect"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, counted := handlerOf(t, web)
			w := ask(h, http.MethodPost, Path, tt.body)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			var got admissionv1.AdmissionReview
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			require.Equal(t, "AdmissionReview", got.Kind)
			require.EqualValues(t, "u-1", got.Response.UID)
			require.Equal(t, tt.allowed, got.Response.Allowed)
			for _, want := range tt.refusal {
				require.Contains(t, got.Response.Result.Message, want)
			}
			if tt.warning == "" {
				require.Empty(t, got.Response.Warnings)
			} else {
				require.Contains(t, strings.Join(got.Response.Warnings, "\n"), tt.warning)
			}
			require.Equal(t, map[string]int{resultOf(got.Response): 1}, counted)
		})
	}
}

func TestInvalidReviews(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		code                     int
		text                     string
	}{
		{"no body", http.MethodPost, Path, "", http.StatusBadRequest, "not an AdmissionReview"},
		{"no JSON", http.MethodPost, Path, "{", http.StatusBadRequest, "not an AdmissionReview"},
		{"another kind", http.MethodPost, Path, `{"apiVersion":"v1","kind":"Pod"}`, http.StatusBadRequest, `"Pod" of "v1"`},
		{"an old version", http.MethodPost, Path, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}`, http.StatusBadRequest, "send an AdmissionReview of admission.k8s.io/v1"},
		{"no request", http.MethodPost, Path, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest, "no request"},
		{"too much", http.MethodPost, Path, `"` + strings.Repeat("x", maxBody), http.StatusRequestEntityTooLarge, "more than"},
		{"another method", http.MethodGet, Path, "", http.StatusMethodNotAllowed, "POST"},
		{"another place", http.MethodPost, "/", "", http.StatusNotFound, Path},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := handlerOf(t)
			w := ask(h, tt.method, tt.path, tt.body)
			require.Equal(t, tt.code, w.Code)
			require.Contains(t, w.Body.String(), tt.text)
		})
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	h, _ := handlerOf(t)
	h.Snapshot = func() *store.Snapshot { panic("a bug") }
	w := ask(h, http.MethodPost, Path, reviewOf("CREATE", "", `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.NotContains(t, w.Body.String(), "a bug", "what happened is in the log")
}

// FuzzReview looks for panics and invalid answers.
func FuzzReview(f *testing.F) {
	f.Add(reviewOf("CREATE", "", `{"hosts":["web"],"http":[{}]}`))
	f.Add(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"UPDATE","object":null,
		"kind":{"group":"networking.istio.io","kind":"Sidecar"}}}`)
	h, _ := handlerOf(f, web)
	h.Count = func(string) {}
	h.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	f.Fuzz(func(t *testing.T, body string) {
		if w := ask(h, http.MethodPost, Path, body); w.Code >= http.StatusInternalServerError {
			t.Fatal(w.Body.String())
		}
	})
}

// TestBusyReviews checks that a review does not wait forever for another one, and then lacks only warnings.
func TestBusyReviews(t *testing.T) {
	h, counted := handlerOf(t, web)
	body := reviewOf("CREATE", "", `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web","subset":"v9"}}]}]}`)
	warned := func() bool {
		answer := ask(h, http.MethodPost, Path, body)
		require.Equal(t, http.StatusOK, answer.Code)
		return strings.Contains(answer.Body.String(), "v9")
	}
	require.True(t, warned())
	h.comparing <- struct{}{} // another review
	require.False(t, warned())
	<-h.comparing
	require.True(t, warned())
	require.Equal(t, map[string]int{"allowed": 3}, counted)
}
