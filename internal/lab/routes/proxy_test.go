package routes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestListenerErrorIsReported checks that the reason contains Envoy's message, if there is one.
func TestListenerErrorIsReported(t *testing.T) {
	p := &proxy{begun: time.Now(), output: &lockedBuffer{}}
	err := p.notReady("outbound", context.DeadlineExceeded, errors.New("connection refused"))
	require.EqualError(t, err, "listener outbound is not ready after 0s (context deadline exceeded): connection refused")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, _ = p.output.Write([]byte("bad port\n"))
	require.EqualError(t, p.notReady("outbound", context.Canceled, nil), "listener outbound is not ready after 0s (context canceled); Envoy: bad port")
}
