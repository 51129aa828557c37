package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
)

// TestSaysThatThereAreOthers: an answer about one control plane's proxies does not pass for one
// about the mesh, whatever it is.
func TestSaysThatThereAreOthers(t *testing.T) {
	others := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if others != "" {
			w.Header().Set(debug.HeaderOthers, others)
		}
		if strings.HasSuffix(r.URL.Path, "/web-1.shop") {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer s.Close()
	ask := func(args ...string) string {
		var out, errOut strings.Builder
		root := NewRootCommand()
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs(append(args, "--address", s.URL))
		_ = root.Execute() // some say that there is no such proxy
		require.NotContains(t, out.String(), "note:", "what programs read is left alone")
		return errOut.String()
	}
	for _, args := range [][]string{{"proxies"}, {"stale"}, {"proxies", "web-1.shop"}, {"explain", "service/web", "-n", "shop"}} {
		others = ""
		require.NotContains(t, ask(args...), "note:", args)
		others = "2"
		require.Contains(t, ask(args...), "alone; 2 more serve this mesh", args)
	}
}
