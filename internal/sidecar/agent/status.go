package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
	"github.com/moonsail/moonsail/internal/sidecar/agent/istiometrics"
)

// probeTimeout is below a kubelet's default of 3 s in Istio's injected probes.
const probeTimeout = 2500 * time.Millisecond

// statusServers answer on the status port (metrics, readiness, quit) and on the health
// port (readiness). They live as long as the agent, longer than any Envoy.
type statusServers struct {
	servers []*http.Server
	done    chan struct{} // one value for each server that has ended
}

// serveStatus binds both ports, and serves them until stop; an error says which flag to change.
func (a *agent) serveStatus(ctx context.Context) (stop func(), err error) {
	status, health := http.NewServeMux(), http.NewServeMux()
	for _, mux := range []*http.ServeMux{status, health} {
		mux.HandleFunc("GET /healthz/ready", a.handleReady)
	}
	scrape := inTurns(maxScrapes)
	status.HandleFunc("GET /stats/prometheus", scrape(a.handleMetrics))
	status.HandleFunc("GET /metrics", scrape(a.handleMetrics))
	status.HandleFunc("GET "+envoyMetricsPath, scrape(a.handleEnvoyMetrics))
	if err := a.serveAppProbes(status); err != nil {
		return nil, err
	}
	status.Handle("GET "+inspect.PathIdentity, a.guarded(a.handleIdentity))
	status.Handle("GET "+inspect.PathWorkers, a.guarded(a.handleWorkers))
	status.HandleFunc("POST /quitquitquit", a.handleQuit)
	status.HandleFunc("POST "+DrainPath, a.handleDrain(ctx))
	status.Handle("GET /debug/", inspect.Pages(a.admin, a.logged, a.debugAccess(), a.log))

	s := &statusServers{done: make(chan struct{}, 2)}
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
		s.servers = append(s.servers, server)
		go func() {
			_ = server.Serve(l)
			s.done <- struct{}{}
		}()
	}
	return s.close, nil
}

// Bounds of connections, which anybody in the network may open.
const (
	statusHeaderTimeout = 5 * time.Second
	statusIdleTimeout   = 2 * time.Minute // longer than between two scrapes
	statusWriteTimeout  = time.Minute     // of an answer that nobody takes
	// maxScrapes is how many are answered at the same time, each of which may take some MB and keeps Envoy's main
	// thread busy; others wait.
	maxScrapes = 8
)

func newStatusServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: statusHeaderTimeout, WriteTimeout: statusWriteTimeout, IdleTimeout: statusIdleTimeout}
}

// inTurns has at most so many requests at a time go to the handlers that share it, from the question until the answer
// is taken.
func inTurns(most int) func(http.HandlerFunc) http.HandlerFunc {
	turns := make(chan struct{}, most)
	return func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
				h(w, r)
			case <-r.Context().Done():
			}
		}
	}
}

// takeTime is for handlers that may think for longer than it may take to write their answers.
func takeTime(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // tests' writers have none
}

func listenError(err error, flag string) error {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("%w: this machine does not have that address: correct --ip or --bind-address", err)
	}
	return fmt.Errorf("%w: is another sidecar running at this address? Choose another --ip "+
		"(any of 127.0.0.0/8 on one machine) or %s", err, flag)
}

// close ends the servers and returns when they have ended.
func (s *statusServers) close() {
	for _, server := range s.servers {
		_ = server.Close() // nobody is left to tell
		<-s.done
	}
}

// ready is what both ports answer: nil, or why not.
func (a *agent) ready(ctx context.Context) error {
	if a.draining.Load() {
		return errors.New("the sidecar is draining")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := a.checkReady(ctx)
	a.metrics.setReady(err == nil)
	return err
}

func (a *agent) handleReady(w http.ResponseWriter, r *http.Request) {
	if err := a.ready(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// handleMetrics merges the agent's metrics, Envoy's and the application's. What cannot be had is left out
// and counted: the rest is worth more than an error.
func (a *agent) handleMetrics(w http.ResponseWriter, r *http.Request) {
	a.metrics.scrapes.Inc()
	var fromEnvoy bytes.Buffer
	live := a.live.Load() // of the Envoy that is asked, or of one before
	if a.envoyMetrics(r, &fromEnvoy) != nil {
		fromEnvoy.Reset()
	}
	fromApp := a.appMetrics(r)
	families, err := a.metrics.registry.Gather()
	if err != nil {
		a.metrics.scrapeFailures.WithLabelValues("agent").Inc()
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if encoder.Encode(f) != nil {
			return // the scraper has gone
		}
	}
	_ = istiometrics.Rewrite(w, fromEnvoy.Bytes(), a.own(), live) // fails where the scraper has gone
	_, _ = w.Write(fromApp)
}

// envoyMetrics writes Envoy's, those that the query chooses. Only where it has them all they tell how
// many series there are.
func (a *agent) envoyMetrics(r *http.Request, to *bytes.Buffer) error {
	if err := a.admin.Prometheus(r.Context(), r.URL.RawQuery, to); err != nil {
		a.metrics.scrapeFailures.WithLabelValues("envoy").Inc()
		return err
	}
	if r.URL.RawQuery == "" {
		a.countSeries(to.Bytes())
	}
	return nil
}

// envoyMetricsPath is where the Prometheus listener asks.
const envoyMetricsPath = "/stats/envoy"

// handleEnvoyMetrics are Envoy's alone, under Istio's names.
func (a *agent) handleEnvoyMetrics(w http.ResponseWriter, r *http.Request) {
	var raw bytes.Buffer
	live := a.live.Load()
	if err := a.envoyMetrics(r, &raw); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_ = istiometrics.Rewrite(w, raw.Bytes(), a.own(), live) // fails where the scraper has gone
}

// appMetrics are the application's, where it is known to have any. Where the Pod's annotations lead to us, it has none:
// we would ask ourselves for ever.
func (a *agent) appMetrics(r *http.Request) []byte {
	if p := a.AppMetrics.Port; p == 0 || p == a.ports.Status || p == a.ports.Prometheus {
		return nil
	}
	body, err := a.scrapeApp(r.Context(), r)
	if err != nil {
		a.metrics.scrapeFailures.WithLabelValues("application").Inc()
		a.log.Debug("the application's metrics were not had", "error", err)
		return nil
	}
	return body
}

// DrainPath is where programs of the same host or pod ask on the status port to leave.
const DrainPath = "/drain"

// handleDrain leaves, begins the drain of inbound connections, and answers then: the
// application may end when it has done what it was asked. The sidecar goes on until it is
// ended. agentCtx is the agent's: a caller who gives up does not take it back.
func (a *agent) handleDrain(agentCtx context.Context) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !fromThisHost(r) {
			http.Error(w, "only requests from this host are allowed", http.StatusForbidden)
			return
		}
		takeTime(w)
		a.draining.Store(true)
		a.metrics.setReady(false)
		known, text := a.deregister(context.WithoutCancel(agentCtx))
		a.beginDrain()
		if !known {
			w.WriteHeader(http.StatusGatewayTimeout)
		}
		fmt.Fprintln(w, text)
	}
}

func fromThisHost(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// handleQuit ends the sidecar at once, as a job does whose work is done. Only programs
// of the same host or pod may ask.
func (a *agent) handleQuit(w http.ResponseWriter, r *http.Request) {
	if !fromThisHost(r) {
		http.Error(w, "only requests from this host are allowed", http.StatusForbidden)
		return
	}
	fmt.Fprintln(w, "OK")
	a.quitOnce.Do(func() { close(a.quit) })
}
