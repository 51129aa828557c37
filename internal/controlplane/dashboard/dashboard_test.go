package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/dashboard"
)

// get reads a page.
func get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	dashboard.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w
}

// TestPaths checks that everything the page refers to is served with its type, and that the page may only
// call its control plane.
func TestPaths(t *testing.T) {
	types := map[string]string{".css": "text/css", "js": "text/javascript"}
	for _, path := range dashboard.Paths {
		w := get(t, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		for suffix, want := range types {
			if strings.HasSuffix(path, suffix) {
				require.Contains(t, w.Header().Get("Content-Type"), want)
			}
		}
	}
	page := get(t, dashboard.Path).Body.String()
	for _, m := range regexp.MustCompile(`(?:href|src)="(/dashboard/[^"]+)"`).FindAllStringSubmatch(page, -1) {
		require.Contains(t, dashboard.Paths, m[1])
	}
	require.NotContains(t, page, "style=", "the policy forbids it")
	require.Equal(t, http.StatusNotFound, get(t, "/dashboard/dashboard.go").Code)
}

// TestIdentifiers checks that the page has the elements that the program looks for, and that the pages it
// requests exist.
func TestIdentifiers(t *testing.T) {
	page := get(t, dashboard.Path).Body.String()
	program := get(t, "/dashboard/dashboard.js").Body.String()
	found := 0
	for _, m := range regexp.MustCompile(`(?:byId|tile)\("([^"]+)"`).FindAllStringSubmatch(program, -1) {
		require.Contains(t, page, `id="`+m[1]+`"`)
		found++
	}
	require.Greater(t, found, 10)
	handler, err := os.ReadFile("../debug/handler.go")
	require.NoError(t, err)
	found = 0
	for _, m := range regexp.MustCompile(`[^.\w](?:get|ask)\("([^"?]+)`).FindAllStringSubmatch(program, -1) {
		require.Contains(t, string(handler), `"`+m[1]+`"`)
		found++
	}
	require.Greater(t, found, 5)
}

// TestNoMarkup checks that texts of a mesh are never parsed as HTML.
func TestNoMarkup(t *testing.T) {
	program := get(t, "/dashboard/dashboard.js").Body.String()
	for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		require.NotContains(t, program, word)
	}
}
