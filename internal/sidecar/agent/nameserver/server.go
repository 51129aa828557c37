package nameserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// TTL of answers in seconds, as in Istio.
const TTL = 30

// Options of a Server.
type Options struct {
	Addresses []string // "127.0.0.1:15053"; each with UDP and TCP
	Table     *Table
	Upstream  []string // servers for other names, as host:port; none: other names do not exist
	Metrics   *Metrics
	Log       *slog.Logger
}

// Server answers questions until Close.
//
// Goroutines: two for each address, which end with Close, and one for each question. maxAsking bounds those that wait
// for other servers.
type Server struct {
	opts    Options
	servers []*dns.Server
	serving sync.WaitGroup
	asking  chan struct{} // holds one token for each question to other servers
	turn    atomic.Uint32 // rotates addresses
}

// maxAsking bounds the questions that wait for other servers. Further ones get SERVFAIL.
const maxAsking = 512

// Start listens and answers questions.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{opts: o, asking: make(chan struct{}, maxAsking)}
	for _, address := range o.Addresses {
		if err := s.listen(ctx, address); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Server) listen(ctx context.Context, address string) error {
	var config net.ListenConfig
	packets, err := config.ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	connections, err := config.Listen(ctx, "tcp", packets.LocalAddr().String())
	if err != nil {
		_ = packets.Close()
		return fmt.Errorf("DNS: %w", err)
	}
	return errors.Join(
		s.serve(&dns.Server{PacketConn: packets, UDPSize: dns.DefaultMsgSize, Handler: s.handler("udp")}, packets),
		s.serve(&dns.Server{Listener: connections, Handler: s.handler("tcp")}, connections),
	)
}

// serve returns when the server has started, because one that has not started cannot be shut down. If the server cannot
// start, serve closes on.
func (s *Server) serve(server *dns.Server, on io.Closer) error {
	started, ended := make(chan struct{}), make(chan error, 1)
	server.NotifyStartedFunc = func() { close(started) }
	s.serving.Go(func() { ended <- s.run(server) })
	select {
	case <-started:
		s.servers = append(s.servers, server)
		return nil
	case err := <-ended:
		return errors.Join(err, on.Close())
	}
}

func (s *Server) run(server *dns.Server) error {
	err := server.ActivateAndServe()
	if err != nil {
		s.opts.Log.Warn("the DNS proxy ended", "error", err)
	}
	return err
}

// Addr returns the first address.
func (s *Server) Addr() string { return s.servers[0].PacketConn.LocalAddr().String() }

// Close ends the server after the questions that it is answering.
func (s *Server) Close() {
	for _, server := range s.servers {
		_ = server.Shutdown() // fails only if it was not started
	}
	s.serving.Wait()
}

func (s *Server) handler(network string) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.opts.Metrics.requests.Inc()
		answer := s.answer(network, q)
		if network == "udp" {
			answer.Truncate(sizeFor(q))
		}
		_ = w.WriteMsg(answer) // fails if the client has gone
	})
}

// sizeFor returns the largest size of an answer in one packet.
func sizeFor(q *dns.Msg) int {
	if o := q.IsEdns0(); o != nil {
		return max(dns.MinMsgSize, int(o.UDPSize()))
	}
	return dns.MinMsgSize
}

// answer never returns nil.
func (s *Server) answer(network string, q *dns.Msg) *dns.Msg {
	if len(q.Question) != 1 {
		return failure(q, dns.RcodeFormatError)
	}
	question := q.Question[0]
	if question.Qclass == dns.ClassINET && (question.Qtype == dns.TypeA || question.Qtype == dns.TypeAAAA) {
		if !s.opts.Table.Loaded() {
			return failure(q, dns.RcodeServerFailure) // the client retries
		}
		if h, alias := s.opts.Table.lookup(question.Name); h != nil {
			return s.own(q, h, alias)
		}
	}
	return s.forward(network, q)
}

func failure(q *dns.Msg, code int) *dns.Msg {
	return new(dns.Msg).SetRcode(q, code)
}

// own returns the answer for a host of the mesh. If the host has no address of the requested family, the answer is
// empty. Other servers are not asked, because they may not know the host.
func (s *Server) own(q *dns.Msg, h *host, alias string) *dns.Msg {
	out := new(dns.Msg).SetReply(q)
	out.Authoritative, out.RecursionAvailable = true, true
	question := q.Question[0]
	name := question.Name
	addresses := h.addresses(question.Qtype == dns.TypeAAAA, int(s.turn.Add(1)))
	if alias != "" {
		target := dns.Fqdn(alias)
		out.Answer = append(out.Answer, &dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: target})
		name = target
	}
	for _, a := range addresses {
		out.Answer = append(out.Answer, record(name, a))
	}
	return out
}

func header(name string, typ uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: typ, Class: dns.ClassINET, Ttl: TTL}
}

func record(name string, a netip.Addr) dns.RR {
	if a.Is4() {
		return &dns.A{Hdr: header(name, dns.TypeA), A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: a.AsSlice()}
}

// upstreamTimeout bounds the wait for one server.
const upstreamTimeout = 2 * time.Second

// forward asks other servers one after the other, until one answers.
func (s *Server) forward(network string, q *dns.Msg) *dns.Msg {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		return failure(q, dns.RcodeServerFailure)
	}
	m := s.opts.Metrics
	m.upstream.Inc()
	began := time.Now()
	defer func() { m.duration.Observe(time.Since(began).Seconds()) }()
	client := &dns.Client{Net: network, Timeout: upstreamTimeout, UDPSize: dns.DefaultMsgSize}
	for _, server := range s.opts.Upstream {
		answer, _, err := client.Exchange(q, server)
		if err == nil {
			return answer
		}
		m.failures.Inc()
		s.opts.Log.Debug("no answer from a DNS server", "server", server, "error", err)
	}
	return failure(q, dns.RcodeServerFailure)
}

// Metrics are those of the DNS proxy of Istio's agent.
type Metrics struct {
	requests, upstream, failures prometheus.Counter
	duration                     prometheus.Histogram
}

// NewMetrics registers the metrics in r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		requests: counter("dns_requests_total", "Total number of DNS requests."),
		upstream: counter("dns_upstream_requests_total", "Total number of DNS requests forwarded to upstream."),
		failures: counter("dns_upstream_failures_total", "Total number of DNS failures when forwarding to upstream."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "dns_upstream_request_duration_seconds",
			Help: "Total time in seconds to get a DNS response from upstream.", Buckets: []float64{0.001, 0.005, 0.01, 0.1, 1, 5}}),
	}
	r.MustRegister(m.requests, m.upstream, m.failures, m.duration)
	return m
}

// ReadConfig reads the servers and search domains of a resolv.conf. It skips the proxy's own addresses.
func ReadConfig(file string, own []string) (servers, search []string, err error) {
	c, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, nil, err
	}
	for _, host := range c.Servers {
		address := net.JoinHostPort(host, c.Port)
		mine := false
		for _, o := range own {
			mine = mine || o == address
		}
		if !mine {
			servers = append(servers, address)
		}
	}
	return servers, c.Search, nil
}
