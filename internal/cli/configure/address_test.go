package configure

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// TestAddressOfOtherSource checks that no other configuration takes the place of that of the control plane at --address.
func TestAddressOfOtherSource(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer server.Close()
	for _, args := range [][]string{{"analyze"}, {"diff", "-f", "../../../examples/canary"}} {
		status, _, errOut := moonsail(t, append(args, "--address", server.URL)...)
		require.Equal(t, terminal.ExitUsage, status)
		require.Regexp(t, "^error: --address: the source of .*http://.* is not a directory: choose its cluster with --context instead\n", errOut)
	}
	status, _, errOut := moonsail(t, "analyze", shopDir, "--address", server.URL)
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, errOut, "error: --address excludes files, --kubeconfig and --context: give either\n")
}
