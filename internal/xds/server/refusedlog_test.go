package server

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefusedProxiesDoNotFloodTheLog: a client without a certificate may send any node ID, as often as it
// likes.
func TestRefusedProxiesDoNotFloodTheLog(t *testing.T) {
	var out strings.Builder
	r, log := newRefusedLog(), slog.New(slog.NewTextHandler(&out, nil))
	long := strings.Repeat("x", 1<<20)
	for range 1000 {
		r.log(log, noon, long, "10.0.0.1:1", errors.New("no"))
	}
	require.Equal(t, refusedPerSecond, strings.Count(out.String(), "\n"))
	require.Less(t, out.Len(), 5000)
	out.Reset()
	r.log(log, noon.Add(time.Second), "sidecar~a", "10.0.0.1:1", errors.New("no"))
	require.Contains(t, out.String(), "proxy=sidecar~a peer=10.0.0.1:1 error=no omitted=990")
}

// TestErrorsShortenNodeIDs: the error goes to the client, to its log and to ours.
func TestErrorsShortenNodeIDs(t *testing.T) {
	_, err := ParseID(strings.Repeat("x", 1<<20))
	require.ErrorContains(t, err, "it has 1048576 bytes, and the limit is 1024")
	require.Less(t, len(err.Error()), 1000)
	_, err = ParseID("sidecar~" + strings.Repeat("x", 1000) + "~a.b~c")
	require.ErrorContains(t, err, "is not an IP address")
	require.Less(t, len(err.Error()), 1000)
	require.Equal(t, strings.Repeat("x", maxShown)+"...", ShortID(strings.Repeat("x", 300)))
}
