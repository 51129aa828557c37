package client

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deadlines keeps the deadline of the last request.
type deadlines struct {
	at  time.Time
	set bool
}

func (d *deadlines) RoundTrip(r *http.Request) (*http.Response, error) {
	d.at, d.set = r.Context().Deadline()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// TestRequestsEnd checks that a control plane that does not answer holds no command for ever.
func TestRequestsEnd(t *testing.T) {
	c := &ControlPlane{Address: "127.0.0.1:1"}
	d := &deadlines{}
	c.http.Transport = d
	_, err := c.Text(t.Context(), "/metrics")
	require.NoError(t, err)
	require.True(t, d.set)
	require.LessOrEqual(t, time.Until(d.at), Timeout)
	ctx, cancel := context.WithTimeout(t.Context(), 2*Timeout)
	defer cancel()
	_, err = c.Text(ctx, "/debug/pprof/profile")
	require.NoError(t, err)
	require.Greater(t, time.Until(d.at), Timeout, "a caller that needs more time has it")
}
