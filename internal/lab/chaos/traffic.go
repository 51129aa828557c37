package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// Intervals between the requests of one client.
const (
	httpEvery  = 60 * time.Millisecond
	tcpEvery   = 150 * time.Millisecond
	plainEvery = 300 * time.Millisecond // of each server
	// A stream has some messages at this interval.
	messageEvery   = 100 * time.Millisecond
	streamMessages = 5
	// requestTime bounds a request. A busy machine must not reach it.
	requestTime = 20 * time.Second
)

// traffic makes requests and judges their answers.
type traffic struct {
	layout
	history *history
	found   func(violation)
	ended   sync.WaitGroup
	cancel  context.CancelFunc

	mu      sync.Mutex         // guards the fields below
	counts  map[string]*counts // by protocol
	excused int                // answers that a fault of a proxy of the request explains
	drained int                // failures that the drain of a connection explains
}

// counts are requests by what they answered.
type counts struct {
	Requests int            `json:"requests"`
	Answers  map[string]int `json:"answers"`
}

func startTraffic(l layout, h *history, found func(violation)) *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	t := &traffic{layout: l, history: h, found: found, cancel: cancel, counts: map[string]*counts{}}
	for _, c := range l.clients() {
		t.ended.Go(func() { t.http(ctx, c) })
		t.ended.Go(func() { t.grpc(ctx, c) })
		t.ended.Go(func() { t.tcp(ctx, c) })
	}
	for _, server := range l.proxies()[l.Clients:] {
		t.ended.Go(func() { t.plain(ctx, server) })
	}
	return t
}

// stop ends all requests.
func (t *traffic) stop() {
	t.cancel()
	t.ended.Wait()
}

// each calls make at an interval, with a number, until ctx ends.
func (t *traffic) each(ctx context.Context, every time.Duration, request func(i int)) {
	for i := 0; clock.Sleep(ctx, every) == nil; i++ {
		request(i)
	}
}

// call makes a request and judges its answer. detail is shown with violations.
func (t *traffic) call(ctx context.Context, c call, make func(ctx context.Context) (answer, detail string)) {
	from := time.Now()
	limit, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	answer, detail := make(limit)
	if ctx.Err() != nil {
		return // the traffic was stopped
	}
	to := time.Now()
	verdict, why := t.history.judge(c, from, to, answer)
	t.mu.Lock()
	n := t.counts[c.Proto]
	if n == nil {
		n = &counts{Answers: map[string]int{}}
		t.counts[c.Proto] = n
	}
	n.Requests++
	n.Answers[answer]++
	switch verdict {
	case excused:
		t.excused++
	case drained:
		t.drained++
	case right, violating:
	}
	t.mu.Unlock()
	if verdict != violating {
		return
	}
	who := c.Client
	if who == "" {
		who = "outside"
	}
	if detail != "" {
		why += " (" + detail + ")"
	}
	t.found(violation{At: from, Took: to.Sub(from), Kind: "request", Subject: fmt.Sprintf("%s %s -> %s", c.Proto, who, c.Service), Text: why})
}

// http alternates HTTP/1.1 and HTTP/2, and goes round all services and external hosts.
func (t *traffic) http(ctx context.Context, client string) {
	h2 := &http.Protocols{}
	h2.SetUnencryptedHTTP2(true)
	one, two := &http.Transport{}, &http.Transport{Protocols: h2}
	defer one.CloseIdleConnections()
	defer two.CloseIdleConnections()
	hosts := append(t.services(), t.externals()...)
	t.each(ctx, httpEvery, func(i int) {
		c := call{Client: client, Service: hosts[i/2%len(hosts)], Proto: protoHTTP1}
		transport := one
		if i%2 == 1 {
			c.Proto, transport = protoHTTP2, two
		}
		t.call(ctx, c, func(ctx context.Context) (string, string) {
			return get(ctx, transport, "http://"+at(t.ip(client), httpPort)+"/", hostOf(c.Service), c.Service)
		})
	})
}

// plain calls a server's sidecar without a certificate, on a new connection each time.
func (t *traffic) plain(ctx context.Context, server string) {
	transport := &http.Transport{DisableKeepAlives: true}
	c := call{Service: server, Proto: plainCall}
	t.each(ctx, plainEvery, func(int) {
		t.call(ctx, c, func(ctx context.Context) (string, string) {
			answer, detail := get(ctx, transport, "http://"+at(t.ip(server), meshHTTP)+"/", hostOf(serviceOf(server)), serviceOf(server))
			if answer == failed {
				answer = refused
			}
			return answer, detail
		})
	})
}

func get(ctx context.Context, transport *http.Transport, url, host, service string) (answer, detail string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return failed, err.Error()
	}
	req.Host = host
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return failed, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err != nil {
		return failed, err.Error()
	}
	body := string(b)
	detail = resp.Status + " " + body
	switch {
	case resp.StatusCode == http.StatusOK:
		return instanceAnswer(service, body), detail
	case resp.StatusCode == http.StatusForbidden:
		return denied, detail
	case resp.StatusCode == abortCode:
		return aborted, detail
	case resp.StatusCode == http.StatusInternalServerError:
		return badRoute, detail
	case noUpstream(resp.StatusCode, body):
		return unrouted, detail
	}
	return failed, detail
}

// noUpstream recognises Envoy's answers if it has no route, no cluster or no endpoint for a request.
func noUpstream(status int, body string) bool {
	return (status == http.StatusServiceUnavailable || status == http.StatusBadGateway || status == http.StatusNotFound) &&
		(body == "" || body == "no healthy upstream")
}

// instanceAnswer returns the version of the instance that has answered a call of a service.
func instanceAnswer(service, instance string) string {
	if strings.HasPrefix(service, "e") {
		return instance
	}
	if of, version, ok := strings.Cut(instance, "-"); ok && of == service {
		return version
	}
	return misrouted
}

// reconnecting lets clients find their sidecar soon after it is back.
var reconnecting = grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}, MinConnectTimeout: 5 * time.Second}

// grpc opens one stream after the other, each for some messages.
func (t *traffic) grpc(ctx context.Context, client string) {
	conns := map[string]*grpc.ClientConn{}
	defer func() {
		for _, c := range conns {
			_ = c.Close() // nothing is left to send
		}
	}()
	services := t.services()
	t.each(ctx, messageEvery, func(i int) {
		c := call{Client: client, Service: services[i%len(services)], Proto: protoGRPC}
		conn := conns[c.Service]
		if conn == nil {
			var err error
			conn, err = grpc.NewClient("passthrough:///"+at(t.ip(client), grpcPort), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithAuthority(hostOf(c.Service)), grpc.WithDisableRetry(), grpc.WithConnectParams(reconnecting))
			if err != nil {
				return
			}
			conns[c.Service] = conn
		}
		t.call(ctx, c, func(ctx context.Context) (string, string) { return stream(ctx, conn, c.Service) })
	})
}

// stream sends messages on one stream. All answers must be from the same instance.
func stream(ctx context.Context, conn *grpc.ClientConn, service string) (answer, detail string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, echoMethod, grpc.WaitForReady(true))
	if err != nil {
		return grpcError(err)
	}
	for i := range streamMessages {
		if i > 0 && clock.Sleep(ctx, messageEvery) != nil {
			return failed, ctx.Err().Error()
		}
		var m wrapperspb.StringValue
		if err := s.SendMsg(wrapperspb.String("")); err != nil && !errors.Is(err, io.EOF) { // after EOF, RecvMsg has the reason
			return grpcError(err)
		}
		if err := s.RecvMsg(&m); err != nil {
			a, d := grpcError(err)
			if i > 0 {
				return failed, fmt.Sprintf("after %d messages: %s %s", i, a, d)
			}
			return a, d
		}
		answer = instanceAnswer(service, m.Value)
	}
	return answer, ""
}

func grpcError(err error) (answer, detail string) {
	s := status.Convert(err)
	switch text := s.Message(); {
	case s.Code() == codes.PermissionDenied:
		answer = denied
	case strings.Contains(text, "fault filter abort"):
		answer = aborted
	case s.Code() == codes.Unavailable && (text == "" || text == "no healthy upstream"), s.Code() == codes.Unimplemented && text == "":
		answer = unrouted
	case s.Code() == codes.Internal && text == "", s.Code() == codes.Unknown && text == "":
		answer = badRoute
	default:
		answer = failed
	}
	return answer, err.Error()
}

// tcp sends one line on a new connection each time.
func (t *traffic) tcp(ctx context.Context, client string) {
	services := t.services()
	t.each(ctx, tcpEvery, func(i int) {
		c := call{Client: client, Service: services[i%len(services)], Proto: protoTCP}
		t.call(ctx, c, func(ctx context.Context) (string, string) {
			return line(ctx, at(t.ip(client), tcpPortOf(c.Service)), c.Service)
		})
	})
}

// line sends a line and reads one. A connection that ends without an answer is one that a policy denies.
func line(ctx context.Context, addr, service string) (answer, detail string) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return failed, err.Error()
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return denied, err.Error()
	}
	b, err := io.ReadAll(io.LimitReader(c, 1000))
	if len(b) == 0 {
		detail = "closed without an answer"
		if err != nil {
			detail = err.Error()
		}
		if ctx.Err() != nil {
			return failed, "no answer within " + requestTime.String()
		}
		return denied, detail
	}
	return instanceAnswer(service, strings.TrimSpace(string(b))), ""
}
