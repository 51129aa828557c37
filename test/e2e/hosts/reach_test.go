//go:build linux

package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/netns"
)

// serve answers requests at a port of a host, until the test ends, with a description of the request.
func serve(t *testing.T, h *netns.Host, port int, name string) {
	t.Helper()
	serveAt(t, h, fmt.Sprint(":", port), name)
}

// serveAt is serve at an address of the host.
func serveAt(t *testing.T, h *netns.Host, address, name string) {
	t.Helper()
	var ln net.Listener
	var err error
	h.Do(t, func() {
		ln, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	})
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // of a test
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reached{App: name, From: from, Header: r.Header}) // the caller has gone
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
}

// reached is an application's description of a request.
type reached struct {
	App    string
	From   string // source address of the connection
	Header http.Header
}

// get requests a page from a host, on a separate connection.
func get(h *netns.Host, url, host string) (status int, text string, err error) {
	return getAs(h, url, host, "")
}

// getAs is get with an id of the request; "": none.
func getAs(h *netns.Host, url, host, id string) (status int, text string, err error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialFrom(ctx, h, network, address)
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// call repeats a request from a host until it is answered with 200, because configuration may still be on its way.
func call(t *testing.T, h *netns.Host, url, host string) reached {
	t.Helper()
	var out reached
	eventually(t, "an answer of "+url, func() error {
		status, text, err := get(h, url, host)
		switch {
		case err != nil:
			return err
		case status != http.StatusOK:
			return fmt.Errorf("status %d: %s", status, text)
		}
		return json.Unmarshal([]byte(text), &out)
	})
	return out
}
