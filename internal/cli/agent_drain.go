package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/terminal"
)

// newAgentDrainCommand is `moonsail agent drain`.
func newAgentDrainCommand() *cobra.Command {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(agent.DefaultStatusPort))
	timeout := time.Minute
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Have a running sidecar leave, and wait until every proxy knows",
		Long: `Asks the sidecar that runs on this machine, or in this pod, to leave: its readiness
fails, the control plane takes the calls to the workload away, and this command returns
as soon as every proxy has ACKed that. The application may then finish what it is at, and
end. It is meant as a preStop command. The sidecar itself goes on until it is ended.

Exit status: 0 every proxy knows, 1 it could not be asked, 3 not every proxy knows.`,
		Example: `  moonsail agent drain
  moonsail agent drain --address 127.0.10.3:15020`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return drainAgent(cmd, address, timeout) },
	}
	cmd.Flags().StringVar(&address, "address", address, "the sidecar's status port, as host:port")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the sidecar; it gives up itself after its --leave-timeout")
	return cmd
}

func drainAgent(cmd *cobra.Command, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+agent.DrainPath, http.NoBody)
	if err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--address %q: %w", address, err)}
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return &terminal.UserError{What: "the sidecar was not asked to leave", Where: address, Err: err, Next: "is it running there? See --address"}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(body))
	switch resp.StatusCode {
	case http.StatusOK:
		fmt.Fprintln(cmd.OutOrStdout(), text)
		return nil
	case http.StatusGatewayTimeout:
		fmt.Fprintln(cmd.OutOrStdout(), text)
		return exitForced
	}
	return &terminal.UserError{What: "deregistration failed: " + text, Where: address}
}
