package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBytesOfLongConnections checks that both sides count the bytes of a connection while it is open, each byte once.
func TestBytesOfLongConnections(t *testing.T) {
	m := startMutual(t, `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: mesh, namespace: istio-system}
spec: {metrics: [{reportingInterval: 0.2s}]}`)
	m.awaitText(t, "welcome\n", func() string { return m.line(m.client.ip, serviceTCP) })
	sides := map[string]*member{"source": m.client, "destination": m.server}
	metrics := []string{"istio_tcp_connections_opened_total", "istio_tcp_connections_closed_total", "istio_tcp_sent_bytes_total", "istio_tcp_received_bytes_total"}
	labels := func(reporter string) map[string]string {
		return map[string]string{"reporter": reporter, "source_principal": spiffeID("client"), "destination_workload": "server",
			"destination_service_name": "server"}
	}
	before := map[string]float64{}
	for reporter, side := range sides {
		opened := side.sample(t, metrics[0], labels(reporter))
		side.requireSample(t, metrics[1], labels(reporter), opened)
		for _, metric := range metrics {
			before[reporter+metric] = side.sample(t, metric, labels(reporter))
		}
	}
	counted := func(values ...int) {
		t.Helper()
		for reporter, side := range sides {
			for i, metric := range metrics {
				side.requireSample(t, metric, labels(reporter), before[reporter+metric]+float64(values[i]))
			}
		}
	}

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", m.client.ip, serviceTCP))
	require.NoError(t, err)
	defer conn.Close()
	text, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "welcome\n", text)
	counted(1, 0, len("welcome\n"), 0)
	_, err = io.WriteString(conn, "hel")
	require.NoError(t, err)
	counted(1, 0, len("welcome\n"), len("hel"))
	_, err = io.WriteString(conn, "lo\n")
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the server ends it")
	require.NoError(t, conn.Close())
	counted(1, 1, len("welcome\n"), len("hello\n"))
	require.Equal(t, "welcome\n", m.line(m.client.ip, serviceTCP))
	counted(2, 2, 2*len("welcome\n"), 2*len("hello\n"))
	m.requireNothingHeld()
}
