package envoylog

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForwarder(t *testing.T) {
	var out bytes.Buffer
	f := New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	for _, part := range []string{"warning\tupstream\tfirst", " half\nerror\tconfig\tsecond\n  continued\n\n", "debug\tmain\thidden\n", "info\tmain\tno newline"} {
		n, err := f.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	f.Flush()
	require.Equal(t, `level=WARN msg="first half" envoy=upstream
level=ERROR msg=second envoy=config
level=ERROR msg="  continued" envoy=output
level=INFO msg="no newline" envoy=main
`, out.String())
	require.Equal(t, []string{"first half", "second", "  continued", "hidden", "no newline"}, f.Last())
}

// TestLogsAnUnreachableControlPlaneOnceAMinute checks that the log does not repeat each of Envoy's attempts.
func TestLogsAnUnreachableControlPlaneOnceAMinute(t *testing.T) {
	var out bytes.Buffer
	f := New(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(1000, 0)
	f.now = func() time.Time { return now }
	for i := range 150 {
		_, _ = fmt.Fprintf(f, "warning\tconfig\tDeltaAggregatedResources gRPC config stream to xds-grpc closed since %ds ago: 14, connection refused\n", 30+i)
		now = now.Add(time.Second)
	}
	require.Equal(t, 3, strings.Count(out.String(), "connection refused"))
	require.Contains(t, out.String(), "since 30s")
	require.Contains(t, out.String(), "since 150s")
	_, _ = f.Write([]byte("warning\tconfig\tDeltaAggregatedResources gRPC config stream to xds-grpc closed: 16, unauthenticated\n"))
	require.Contains(t, out.String(), "unauthenticated", "another error")
}

// TestEndOfStreamsAtTheEnd: streams that end because Envoy ends are no warning.
func TestEndOfStreamsAtTheEnd(t *testing.T) {
	const closed = "warning\tconfig\tStreamSecrets gRPC config stream to sds-grpc closed: 13, connection_termination\n"
	var out bytes.Buffer
	f := New(slog.New(slog.NewTextHandler(&out, nil)))
	_, _ = f.Write([]byte(closed))
	require.Equal(t, 1, strings.Count(out.String(), "StreamSecrets"))
	_, _ = f.Write([]byte("warning\tmain\tcaught ENVOY_SIGTERM\n" + closed + "warning\tmain\tother\n"))
	require.Equal(t, 1, strings.Count(out.String(), "StreamSecrets"))
	require.Contains(t, out.String(), "level=WARN msg=other")
}

func TestForwarderIsBounded(t *testing.T) {
	f := New(slog.New(slog.DiscardHandler))
	_, _ = f.Write([]byte(strings.Repeat("x", 3*maxLine+5)))
	require.Len(t, f.partial, 5)
	require.Len(t, f.Last(), 3)
	for range 100 {
		_, _ = f.Write([]byte("line\n"))
	}
	require.Len(t, f.Last(), tailLines)
}
