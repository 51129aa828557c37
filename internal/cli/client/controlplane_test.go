package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/cli/inspect"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/test/clitest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// moonsail runs a command line of moonsail with the commands that ask a control plane.
func moonsail(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	return clitest.Run(t, clitest.Root(inspect.Commands()...), args...)
}

// TestNoteAboutOthers checks that a note follows an answer that leaves out other control planes.
func TestNoteAboutOthers(t *testing.T) {
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
		_, out, errOut := moonsail(t, append(args, "--address", s.URL)...) // some fail: there is no such proxy
		require.NotContains(t, out, "note:", "standard output is for programs")
		return errOut
	}
	for _, args := range [][]string{{"proxies"}, {"stale"}, {"proxies", "web-1.shop"}, {"explain", "service/web", "-n", "shop"}} {
		others = ""
		require.NotContains(t, ask(args...), "note:", args)
		others = "2"
		require.Contains(t, ask(args...), "; 2 more serve this mesh", args)
	}
}
