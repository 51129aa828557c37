package cli

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/test/await"
)

// The signals go to this process, which handles them as the agent's command does.
func TestAgentSignals(t *testing.T) {
	c := &agent.Config{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := handleSignals(c, cancel)
	defer release()
	send := func(s syscall.Signal) { require.NoError(t, syscall.Kill(os.Getpid(), s)) }
	expect := func(what string, done func() bool) {
		t.Helper()
		require.Eventually(t, done, time.Minute, time.Millisecond, what)
	}
	aborted := func() bool {
		select {
		case <-c.Abort:
			return true
		default:
			return false
		}
	}

	send(syscall.SIGUSR1)
	require.Equal(t, syscall.SIGUSR1, await.From(t, c.Signals), "passed to Envoy")
	require.NoError(t, ctx.Err())
	send(syscall.SIGTERM)
	expect("the first signal drains", func() bool { return ctx.Err() != nil })
	require.False(t, aborted())
	send(syscall.SIGINT)
	expect("the second signal ends at once", aborted)
}
