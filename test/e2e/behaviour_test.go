package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// behaviour is one mesh with one client, in which each subtest has its own hosts.
type behaviour struct {
	mesh      *mesh
	client    *client
	transport *http.Transport
}

// tcpPort is where the client's sidecar accepts TCP.
const tcpPort = 15090

// TestBehaviour applies rules, and checks their effects on calls, at the backend and at the caller.
func TestBehaviour(t *testing.T) {
	b := startBehaviour(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *behaviour)
	}{
		{"retries", retries}, {"per try timeout", perTryTimeout}, {"timeout", routeTimeout}, {"mirror", mirror},
		{"weights", weights}, {"subset by header", subsetByHeader}, {"headers", headerOperations}, {"rewrite", rewrite},
		{"redirect", redirect}, {"cors", corsPreflight}, {"fault", faults},
		{"consistent hash", consistentHash}, {"tls origination", tlsOrigination}, {"http2", http2},
		{"requests per connection", requestsPerConnection}, {"outlier detection", outlierDetection},
		{"overflow", overflow}, {"tcp split", tcpSplit}, {"dns", dnsEntry},
		{"default retries", defaultRetries}, {"host names", hostNames}, {"matches", matches}, {"policy of subset", policyOfSubset},
		{"mutual tls", mutualTLS}, {"cookie hash", cookieHash}, {"websocket", webSocket},
		{"changed policy", changedPolicy}, {"changed labels", changedLabels}, {"chained", chained}, {"static entries", staticEntries},
		{"balanced", balanced},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
	noRefusals(t, b.mesh, b.client)
}

// startBehaviour runs a mesh with one client.
func startBehaviour(t *testing.T) *behaviour {
	t.Helper()
	c := newClient("client")
	tcp := fmt.Sprintf("\n  - {port: {number: %d, name: tcp, protocol: TCP}, bind: %s, captureMode: NONE, hosts: [\"./*\"]}", tcpPort, c.ip)
	b := &behaviour{
		mesh: startMesh(t, server.RoutesAuto, c.sidecar("./*")+tcp, service("web", startApp(t, "web", "v1"))), client: c,
		transport: &http.Transport{MaxIdleConnsPerHost: callers},
	}
	t.Cleanup(b.transport.CloseIdleConnections)
	c.start(t, b.mesh, false)
	return b
}

// given adds a file to the configuration, and waits until the client has it. A Pod that several services share is
// written once.
func (b *behaviour) given(t *testing.T, documents ...string) {
	t.Helper()
	m := *b.mesh
	m.t = t
	var all []string
	for document := range strings.SplitSeq(strings.Join(documents, "\n---\n"), "\n---\n") {
		if !slices.Contains(all, document) {
			all = append(all, document)
		}
	}
	before := m.newest().Revision
	m.write(strings.TrimPrefix(t.Name(), "TestBehaviour/")+".yaml", all...)
	m.awaitChange(before)
}

// answer is the response to the client's application.
type answer struct {
	status int
	header http.Header
	body   string
}

// call requests a path of a host, with headers: names and values in turn.
func (b *behaviour) call(t *testing.T, host, path string, headers ...string) answer {
	t.Helper()
	a, err := b.try(http.MethodGet, host, path, headers...)
	require.NoError(t, err)
	return a
}

// try is call, for goroutines and other methods.
func (b *behaviour) try(method, host, path string, headers ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(b.client.url(), "/")+path, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	req.Host = host
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body)}, err
}

// dial connects to the client's TCP port, and returns all that it receives.
func (b *behaviour) dial(t *testing.T) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", b.client.ip, tcpPort))
	require.NoError(t, err)
	defer conn.Close()
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(text)
}

// only returns the value of the only statistic; 0 if there is none.
func only(stats map[string]uint64) uint64 {
	for _, n := range stats {
		return n
	}
	return 0
}

// policy is a DestinationRule of one host; policy is in flow style.
func policy(host, policy string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: shop}
spec: {host: %[1]s, trafficPolicy: %[2]s}`, host, policy)
}

// toWith is a rule to a host, with more fields in flow style.
func toWith(host, fields string) string {
	return fmt.Sprintf("{route: [{destination: {host: %s}}], %s}", host, fields)
}
