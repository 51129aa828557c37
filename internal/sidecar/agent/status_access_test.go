package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWebSitesEndNothing checks that a web page in a browser of this host starts no drain and ends no sidecar.
func TestWebSitesEndNothing(t *testing.T) {
	a := &agent{quit: newCondition(), draining: newCondition()}
	for _, page := range []http.HandlerFunc{a.handleQuit, a.handleDrain} {
		for name, change := range map[string]func(*http.Request){
			"DNS rebinding":  func(r *http.Request) { r.Host = "evil.example:15020" },
			"another origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			"another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			"another host":   func(r *http.Request) { r.RemoteAddr = "10.1.2.3:4" },
		} {
			r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
			r.RemoteAddr, r.Host = "127.0.0.1:4", "127.0.0.1:15020"
			change(r)
			w := httptest.NewRecorder()
			page(w, r)
			require.Equal(t, http.StatusForbidden, w.Code, name)
		}
	}
	require.False(t, a.draining.isSet())
	require.False(t, a.quit.isSet(), "the sidecar ends")
}
