// Package openloop sends HTTP/1.1 requests at fixed times and measures latencies from these times.
package openloop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Load is an open-loop generator of HTTP/1.1 requests over connections that stay open.
// Requests have fixed times. A late answer does not delay later requests, and latencies are measured from the intended time,
// so that a stall counts for all requests that it affects.
type Load struct {
	Address string
	Hosts   []string // of requests, in turn
	Path    string   // of requests; empty: "/"
	Conns   int
	Rate    int // requests a second; 0: each connection sends its next request at once (closed loop)
}

// Outcome is the result of a load.
type Outcome struct {
	Latencies []time.Duration
	Failed    int // responses other than 200
}

// Run sends requests for the duration d. It opens the connections before the time of the first request.
func (l *Load) Run(ctx context.Context, d time.Duration) (*Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns, err := l.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer CloseAll(conns)
	defer context.AfterFunc(ctx, func() { CloseAll(conns) })()
	if l.Rate == 0 {
		return l.closedLoop(conns, d)
	}
	return l.openLoop(conns, d)
}

// Dial opens the connections.
func (l *Load) Dial(ctx context.Context) (out []net.Conn, err error) {
	var dialer net.Dialer
	for range l.Conns {
		c, err := dialer.DialContext(ctx, "tcp", l.Address)
		if err != nil {
			CloseAll(out)
			return nil, fmt.Errorf("load: %w", err)
		}
		out = append(out, c)
	}
	return out, nil
}

// CloseAll closes connections.
func CloseAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close() // it may have been closed already
	}
}

// Request returns a request of a host as bytes.
func Request(host string) []byte { return request(host, "/") }

func request(host, path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
}

// requests returns those of all hosts.
func (l *Load) requests() (out [][]byte) {
	path := l.Path
	if path == "" {
		path = "/"
	}
	for _, h := range l.Hosts {
		out = append(out, request(h, path))
	}
	return out
}

// openLoop sends request i at begin + i/rate on connection i mod conns. The next request on a connection does not wait
// for a late response, as HTTP/1.1 permits.
func (l *Load) openLoop(conns []net.Conn, d time.Duration) (*Outcome, error) {
	total := int(d.Seconds() * float64(l.Rate))
	interval := time.Second / time.Duration(l.Rate)
	begin := time.Now().Add(10 * time.Millisecond)
	parts, errs := make([]Outcome, len(conns)), make([]error, len(conns))
	var readers sync.WaitGroup
	for c := range conns {
		readers.Go(func() {
			parts[c], errs[c] = readAnswers(conns[c], func(i int) (time.Time, bool) {
				n := c + i*len(conns)
				return begin.Add(time.Duration(n) * interval), n < total
			})
		})
	}
	wire := l.requests()
	var failed error
	for i := 0; i < total && failed == nil; i++ {
		sleepUntil(begin.Add(time.Duration(i) * interval))
		_, failed = conns[i%len(conns)].Write(wire[i%len(wire)])
	}
	if failed != nil {
		CloseAll(conns) // ends the readers
	}
	readers.Wait()
	return join(parts), errors.Join(failed, errors.Join(errs...))
}

// closedLoop sends the next request when the last one is answered. It serves to measure throughput and costs.
func (l *Load) closedLoop(conns []net.Conn, d time.Duration) (*Outcome, error) {
	end := time.Now().Add(d)
	parts, errs, wire := make([]Outcome, len(conns)), make([]error, len(conns)), l.requests()
	var running sync.WaitGroup
	for c := range conns {
		running.Go(func() {
			var unsent, unread error
			parts[c], unread = readAnswers(conns[c], func(i int) (time.Time, bool) {
				now := time.Now()
				if now.After(end) {
					return now, false
				}
				_, unsent = conns[c].Write(wire[(c+i)%len(wire)])
				return now, unsent == nil
			})
			errs[c] = errors.Join(unsent, unread)
		})
	}
	running.Wait()
	return join(parts), errors.Join(errs...)
}

// readAnswers reads response i as long as next returns the intended time of request i.
func readAnswers(conn net.Conn, next func(i int) (time.Time, bool)) (out Outcome, err error) {
	r := bufio.NewReader(conn)
	for i := 0; ; i++ {
		sent, more := next(i)
		if !more {
			return out, nil
		}
		status, err := readAnswer(r)
		if err != nil {
			return out, fmt.Errorf("load: %w", err)
		}
		out.Latencies = append(out.Latencies, time.Since(sent))
		if status != http.StatusOK {
			out.Failed++
		}
	}
}

// readAnswer reads one response with a content length.
func readAnswer(r *bufio.Reader) (status int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if f := bytes.Fields(line); len(f) > 1 {
		status, _ = strconv.Atoi(string(f[1])) // 0 is not a 200
	}
	length := 0
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return 0, err
		}
		name, value, found := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if !found {
			_, err = io.CopyN(io.Discard, r, int64(length))
			return status, err
		}
		if bytes.EqualFold(name, []byte("content-length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
}

func join(parts []Outcome) *Outcome {
	out := &Outcome{}
	for _, p := range parts {
		out.Latencies = append(out.Latencies, p.Latencies...)
		out.Failed += p.Failed
	}
	return out
}
