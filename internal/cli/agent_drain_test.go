package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent"
)

func TestAgentDrain(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		err    string
		out    string
	}{
		"everybody knows": {http.StatusOK, "", "deregistered: 12 proxies ACKed in 8ms\n"},
		"not everybody":   {http.StatusGatewayTimeout, "exit status 3", "deregistered: 12 proxies ACKed in 8ms\n"},
		"refused":         {http.StatusForbidden, "deregistration failed: deregistered", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != agent.DrainPath {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte("deregistered: 12 proxies ACKed in 8ms\n"))
			}))
			defer s.Close()
			var out bytes.Buffer
			cmd := NewAgentCommand()
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"drain", "--address", s.Listener.Addr().String()})
			err := cmd.ExecuteContext(t.Context())
			require.Equal(t, tc.out, out.String())
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
		})
	}
	cmd := NewAgentCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"drain", "--address", "127.0.0.1:9"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "was not asked to leave")
}
