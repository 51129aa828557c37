package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/httpserve"
)

// markHeader selects requests for faults. Applications forward it, with
// the other forwardedHeaders, to the services that they call.
const markHeader = "x-demo"

var forwardedHeaders = []string{markHeader, "x-demo-user", "x-request-id", "traceparent"}

// callTimeout bounds a call of an application. Through two healthy sidecars it takes
// milliseconds.
const callTimeout = 10 * time.Second

// Answer is the response of an application, with the answers of the applications that it has called.
type Answer struct {
	Service  string   `json:"service"`
	Version  string   `json:"version"`
	Instance string   `json:"instance"`
	Attempt  int      `json:"attempt,omitempty"` // attempt of the caller's sidecar
	Error    string   `json:"error,omitempty"`   // the call that failed
	Calls    []Answer `json:"calls,omitempty"`
}

// App is an application of the shop.
type App struct {
	Workload Workload
	Listen   string // host:port
	Sidecar  string // host:port of its sidecar's egress listener
	Log      io.Writer
}

// Run answers requests until ctx ends, and then finishes those in flight.
func (a App) Run(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.Listen)
	if err != nil {
		return err
	}
	transport := sidecarTransport(a.Sidecar)
	defer transport.CloseIdleConnections()
	server := &http.Server{
		Handler:           a.handler(&http.Client{Transport: transport, Timeout: callTimeout}),
		ReadHeaderTimeout: callTimeout,
	}
	fmt.Fprintf(a.Log, "%s listens on %s, calls through %s\n", a.Workload.Name, a.Listen, a.Sidecar)
	return httpserve.Serve(ctx, server, l, callTimeout)
}

// sidecarTransport sends all requests to a sidecar, whatever their host, on kept-alive
// connections.
func sidecarTransport(sidecar string) *http.Transport {
	dialer := &net.Dialer{Timeout: callTimeout}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", sidecar)
		},
		MaxIdleConnsPerHost: 64,
	}
}

func (a App) handler(client *http.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /slow", a.slow)
	mux.HandleFunc("GET /stream", a.stream)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, client) })
	return mux
}

// attemptHeader is set by the caller's Envoy.
const attemptHeader = "x-envoy-attempt-count"

func (a App) self(r *http.Request) Answer {
	attempt, err := strconv.Atoi(r.Header.Get(attemptHeader))
	if err != nil {
		attempt = 0 // the request did not come through a sidecar
	}
	return Answer{Service: a.Workload.App, Version: a.Workload.Version, Instance: a.Workload.Name, Attempt: attempt}
}

// answer calls all services of the workload at once, and responds with 502 if one call failed.
func (a App) answer(w http.ResponseWriter, r *http.Request, client *http.Client) {
	out := a.self(r)
	services := a.Workload.Calls()
	out.Calls = make([]Answer, len(services))
	errs := make([]error, len(services))
	var all sync.WaitGroup
	for i, s := range services {
		all.Go(func() { out.Calls[i], errs[i] = a.call(r, client, s) })
	}
	all.Wait()
	status := http.StatusOK
	if err := errors.Join(errs...); err != nil {
		out.Error, status = err.Error(), http.StatusBadGateway
		fmt.Fprintf(a.Log, "%s %s\n", time.Now().Format("15:04:05.000"), out.Error)
	}
	reply(w, status, out)
}

func (a App) call(r *http.Request, client *http.Client, service string) (Answer, error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+service+"/", http.NoBody)
	if err != nil {
		return Answer{}, err
	}
	for _, h := range forwardedHeaders {
		if v := r.Header.Get(h); v != "" {
			req.Header.Set(h, v)
		}
	}
	out, err := ask(client, req)
	if err != nil {
		return out, fmt.Errorf("%s calls %s: %w", a.Workload.Name, service, err)
	}
	return out, nil
}

// slow responds after ?ms= milliseconds.
func (a App) slow(w http.ResponseWriter, r *http.Request) {
	if clock.Sleep(r.Context(), queryMillis(r, "ms", 1000)) == nil {
		reply(w, http.StatusOK, a.self(r))
	}
}

// stream writes ?n= lines, one every ?ms= milliseconds.
func (a App) stream(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil {
		n = 10
	}
	for i := range n {
		fmt.Fprintf(w, "%s %d\n", a.Workload.Name, i)
		if http.NewResponseController(w).Flush() != nil || clock.Sleep(r.Context(), queryMillis(r, "ms", 100)) != nil {
			return
		}
	}
}

func queryMillis(r *http.Request, name string, otherwise int) time.Duration {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil {
		n = otherwise
	}
	return time.Duration(n) * time.Millisecond
}

func reply(w http.ResponseWriter, status int, a Answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the caller may be gone
}

// statusError is a response with another status than 200.
type statusError struct {
	status int
	body   string
}

// Error returns the status and the reason in the body.
func (e *statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", e.status, e.body))
}

const (
	maxAnswer = 1 << 20
	maxReason = 400 // bytes of a body that are kept as the reason
)

// ask makes a request and reads the application's answer. If the status is not 200, the
// error is a *statusError.
func ask(client *http.Client, req *http.Request) (Answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{}, fmt.Errorf("answer cut off: %w", err)
	}
	var a Answer
	parsed := json.Unmarshal(body, &a) == nil
	switch {
	case resp.StatusCode != http.StatusOK && parsed && a.Error != "":
		return a, &statusError{resp.StatusCode, a.Error}
	case resp.StatusCode != http.StatusOK:
		return a, &statusError{resp.StatusCode, reason(body)}
	case !parsed:
		return a, fmt.Errorf("not the answer of an application: %s", reason(body))
	}
	return a, nil
}

func reason(body []byte) string {
	return string(body[:min(len(body), maxReason)])
}
