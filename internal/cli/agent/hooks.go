package agent

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
	"k8s.io/apimachinery/pkg/util/wait"

	sidecar "github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/terminal"
)

// newDrainCommand returns the command `moonsail agent drain`, a preStop hook.
func newDrainCommand() *cobra.Command {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(sidecar.DefaultStatusPort))
	timeout := time.Minute
	after := time.Duration(0)
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Drain a running sidecar and wait until every proxy has ACKed",
		Long: `Drain the sidecar of this machine or Pod, as a preStop command. The control plane removes
its endpoints, and the command returns when every proxy has ACKed the removal.
The application can then finish its requests and end. The sidecar runs on until it is stopped.

Exit status: 0 every proxy has ACKed, 1 the sidecar does not answer, 3 some proxy has not ACKed.`,
		Example: `  # Drain the sidecar of this Pod
  moonsail agent drain

  # Drain one of several sidecars of this machine
  moonsail agent drain --address 127.0.10.3:15020`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !sleep(cmd.Context(), after) {
				return cmd.Context().Err()
			}
			return drain(cmd, address, timeout)
		},
	}
	cmd.Flags().DurationVar(&after, "after", after, "time to wait before the drain, in which the sidecar serves as before: load balancers outside of the mesh need it to stop sending")
	cmd.Flags().StringVar(&address, "address", address, "`ADDR` of the sidecar's status port, as host:port")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "maximum time to wait for the sidecar, which itself waits for at most its --leave-timeout")
	return cmd
}

// sleep waits for some time, and reports whether it has passed before ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func drain(cmd *cobra.Command, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+sidecar.DrainPath, http.NoBody)
	if err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--address %q: %w", address, err)}
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return &terminal.UserError{What: "the sidecar does not answer", Where: address, Err: err, Next: "check that it runs there, or set --address"}
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

// waitPoll is the interval between readiness probes.
const waitPoll = 200 * time.Millisecond

// newWaitCommand returns the command `moonsail agent wait`, a postStart hook.
func newWaitCommand() *cobra.Command {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(sidecar.DefaultHealthPort))
	timeout := time.Minute
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until the sidecar is ready",
		Long: `Wait until the sidecar of this machine or Pod is ready. As postStart command of the sidecar's
container, it delays the start of the application's container (holdApplicationUntilProxyStarts).

Exit status: 0 ready, 1 not ready within --timeout.`,
		Example: `  # Give up after 30 seconds
  moonsail agent wait --timeout 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return awaitReady(cmd.Context(), address, timeout) },
	}
	cmd.Flags().StringVar(&address, "address", address, "`ADDR` of the sidecar's health port, as host:port")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "maximum time to wait")
	return cmd
}

func awaitReady(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var reason error
	err := wait.PollUntilContextCancel(ctx, waitPoll, true, func(ctx context.Context) (bool, error) {
		reason = checkReady(ctx, address)
		return reason == nil, nil
	})
	if err != nil {
		return &terminal.UserError{What: fmt.Sprintf("the sidecar is not ready after %s", timeout), Where: address, Err: reason, Next: "see the sidecar's log for what it waits for"}
	}
	return nil
}

// checkReady returns nil if the sidecar is ready, and otherwise its reason.
func checkReady(ctx context.Context, address string) error {
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
