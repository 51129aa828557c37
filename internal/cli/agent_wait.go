package cli

import (
	"context"
	"errors"
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

// waitPoll is how often a sidecar is asked whether it is ready.
const waitPoll = 200 * time.Millisecond

// newAgentWaitCommand is `moonsail agent wait`.
func newAgentWaitCommand() *cobra.Command {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(agent.DefaultHealthPort))
	timeout := time.Minute
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until the sidecar of this machine, or pod, is ready",
		Long: `Waits until a sidecar is ready: a postStart command of the sidecar's container, which keeps
the kubelet from starting the application's before (holdApplicationUntilProxyStarts).

Exit status: 0 it is ready, 1 it is not within --timeout.`,
		Example: `  moonsail agent wait --timeout 30s`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return awaitAgent(cmd.Context(), address, timeout) },
	}
	cmd.Flags().StringVar(&address, "address", address, "the sidecar's health port, as host:port")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait")
	return cmd
}

func awaitAgent(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	for {
		err := askReady(ctx, address)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &terminal.UserError{What: fmt.Sprintf("the sidecar is not ready after %s", timeout), Where: address, Err: err, Next: "its log says what it waits for"}
		}
	}
}

// askReady is nil where the sidecar says that it is ready, else what it says.
func askReady(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz/ready", http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return errors.New(strings.TrimSpace(string(text)))
}
