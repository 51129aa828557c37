package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/httpserve"
	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
)

// statusServers serve the status port (metrics, readiness, probes, drain, debug pages) and the health port (readiness).
// They run as long as the agent, longer than any Envoy.
type statusServers struct {
	cancel  context.CancelFunc // of the requests and the servers
	serving sync.WaitGroup
}

// serveStatus binds both ports and serves them until stop.
func (a *agent) serveStatus(ctx context.Context) (stop func(), err error) {
	status, health, err := a.statusPages()
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &statusServers{cancel: cancel}
	for _, p := range []struct {
		port    uint16
		flag    string
		handler http.Handler
	}{{a.ports.Status, "--status-port", status}, {a.ports.Health, "--health-port", health}} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(a.bind, strconv.Itoa(int(p.port))))
		if err != nil {
			s.close()
			return nil, listenError(err, p.flag)
		}
		server := newStatusServer(p.handler)
		server.BaseContext = func(net.Listener) context.Context { return running }
		s.serving.Go(func() { _ = httpserve.Serve(running, server, l, statusCloseTimeout) })
	}
	return s.close, nil
}

func (a *agent) statusPages() (status, health *http.ServeMux, err error) {
	status, health = http.NewServeMux(), http.NewServeMux()
	for _, mux := range []*http.ServeMux{status, health} {
		mux.HandleFunc("GET /healthz/ready", a.handleReady)
	}
	a.scrapes.Register(status)
	if err := appprobe.Register(status, a.Workload.IPs[0], appprobe.Draining{Hold: a.hold, Begin: a.beginHook, Released: a.released}); err != nil {
		return nil, nil, err
	}
	status.Handle("GET "+inspect.PathIdentity, a.protected(a.handleIdentity))
	status.Handle("GET "+inspect.PathWorkers, a.protected(a.handleWorkers))
	status.HandleFunc("POST /quitquitquit", a.handleQuit)
	status.HandleFunc("POST "+DrainPath, a.handleDrain)
	status.Handle("GET /debug/", inspect.Pages(a.admin, a.logTail, a.debugAccess(), a.log))
	return status, health, nil
}

// Timeouts of connections to the status ports, which any host of the network may open.
const (
	statusHeaderTimeout = 5 * time.Second
	statusIdleTimeout   = 2 * time.Minute // longer than the time between two scrapes
	statusWriteTimeout  = time.Minute     // for a client that does not read the answer
	statusCloseTimeout  = time.Second     // for requests that do not end with their context
)

func newStatusServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: statusHeaderTimeout, WriteTimeout: statusWriteTimeout, IdleTimeout: statusIdleTimeout}
}

func listenError(err error, flag string) error {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("%w: this machine does not have that address: correct --ip or --bind-address", err)
	}
	return fmt.Errorf("%w: is another sidecar running at this address? Choose another --ip "+
		"(any of 127.0.0.0/8 on one machine) or %s", err, flag)
}

// close ends the requests and the servers, and waits for their end.
func (s *statusServers) close() {
	s.cancel()
	s.serving.Wait()
}

func (a *agent) handleReady(w http.ResponseWriter, r *http.Request) {
	if err := a.ready(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// DrainPath of the status port starts the drain. Only programs of the same host or Pod may request it, and no web site
// (debugauth.Local).
const DrainPath = "/drain"

// handleDrain deregisters the workload, starts the drain of inbound connections, and answers then. After the answer the
// application may end; the sidecar runs until it is stopped. A client that disconnects does not cancel the drain.
func (a *agent) handleDrain(w http.ResponseWriter, r *http.Request) {
	if err := debugauth.Local(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	// The deregistration may take longer than statusWriteTimeout.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	a.startDrain()
	a.deregistration.Start()
	acked, text, known := a.deregistration.Wait()
	if known { // otherwise the sidecar ends
		a.beginDrain()
	}
	if !acked {
		w.WriteHeader(http.StatusGatewayTimeout)
	}
	fmt.Fprintln(w, text)
}

// handleQuit ends the sidecar at once, for a job that has finished. Only programs of the same host or Pod may request it, and no web site
// (debugauth.Local).
func (a *agent) handleQuit(w http.ResponseWriter, r *http.Request) {
	if err := debugauth.Local(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	fmt.Fprintln(w, "OK")
	a.quit.set()
}

// debugAccess allows the debug pages for this host or Pod, and for other hosts with a token.
func (s *settings) debugAccess() debugauth.Policy {
	return debugauth.Policy{Flags: "--debug", TokenFile: s.DebugTokenFile}
}

// protected applies debugAccess to a page.
func (a *agent) protected(page http.HandlerFunc) http.Handler {
	return a.debugAccess().Guard(page, refuse, a.log)
}

// handleIdentity describes the workload's certificate, without its key.
func (a *agent) handleIdentity(w http.ResponseWriter, _ *http.Request) {
	if a.identity == nil {
		refuse(w, http.StatusNotFound, "this workload has no identity", "see --ca-address")
		return
	}
	writeJSON(w, a.identity.State())
}

// handleWorkers describes Envoy's worker threads.
func (a *agent) handleWorkers(w http.ResponseWriter, r *http.Request) {
	report, err := a.workers.Report(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error(), "see the agent's log")
		return
	}
	writeJSON(w, report)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails if the client disconnected
}

func refuse(w http.ResponseWriter, code int, what, next string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": what, "next": next}) // fails if the client disconnected
}
