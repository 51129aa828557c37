package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// slowCalls makes n calls at the same time, which the server delays until settled of them have arrived or failed. It
// returns their statuses, sorted. A call that waits for a connection has done neither.
func (m *mutual) slowCalls(n, settled int) []int {
	m.t.Helper()
	before := len(m.server.backend.requests())
	var guard sync.Mutex // statuses
	var statuses []int
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			status := m.hang()
			guard.Lock()
			defer guard.Unlock()
			statuses = append(statuses, status)
		})
	}
	eventually(m.t, "calls are there, or refused", func() bool {
		guard.Lock()
		defer guard.Unlock()
		return len(m.server.backend.requests())-before+len(statuses) >= settled
	}, nil)
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	for {
		select {
		case m.server.backend.release <- struct{}{}:
		case <-done:
			slices.Sort(statuses)
			return statuses
		}
	}
}

// hang makes a call that the server's application does not answer before a signal. It returns the status; 0: it failed.
func (m *mutual) hang() int {
	ctx, cancel := context.WithTimeout(m.t.Context(), callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/", m.client.ip, serviceHTTP), http.NoBody)
	if err != nil {
		return 0
	}
	req.Host, req.Close = "server", true
	req.Header.Set("X-Hang", "1")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestLimitsOfConnections checks that sidecars use HTTP/1.1 between them if connections are limited, so that a call
// fails if neither a connection nor a place in the queue is free. A policy can select HTTP/2. The limits also apply at
// the server, unless its Sidecar sets others.
func TestLimitsOfConnections(t *testing.T) {
	m := startMutual(t)
	limits := func(more string) string {
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: shop}
spec: {host: server, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1%s}}}}`, more)
	}
	requireCalls := func(settled int, want ...int) {
		t.Helper()
		m.requireStatus(http.StatusOK, "mutual TLS", func() (int, string) { return m.call("server", serviceHTTP) })
		require.Equal(t, spiffeID("client"), m.peer())
		var got []int
		eventually(t, fmt.Sprintf("calls come to %v", want), func() bool {
			got = m.slowCalls(len(want), settled)
			return slices.Equal(want, got)
		}, func() string { return fmt.Sprint(got) })
	}
	m.apply(m.config("server", limits(""))...)
	requireCalls(2, 200, 200, 503)
	m.apply(m.config("server", limits(", h2UpgradePolicy: UPGRADE"))...)
	requireCalls(2, 200, 200, 503)
	wide := m.config("server", limits(", h2UpgradePolicy: UPGRADE"))
	for i, text := range wide {
		const selects = "  workloadSelector: {labels: {app: server}}\n"
		wide[i] = strings.Replace(text, selects, selects+"  inboundConnectionPool: {tcp: {maxConnections: 100}}\n", 1)
	}
	m.apply(wide...)
	requireCalls(3, 200, 200, 200)
	m.requireNothingHeld()
}
