package routes

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
)

// upstream is a minimal application: it answers each request with the same few bytes.
type upstream struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
}

const upstreamAnswer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

func startUpstream(ctx context.Context) (*upstream, error) {
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	u := &upstream{listener: ln, conns: map[net.Conn]bool{}}
	u.running.Go(u.accept)
	return u, nil
}

func (u *upstream) accept() {
	for {
		conn, err := u.listener.Accept()
		if err != nil {
			return
		}
		u.mu.Lock()
		u.conns[conn] = true
		u.mu.Unlock()
		u.running.Go(func() { u.serve(conn) })
	}
}

// serve answers at each empty line: requests have no body.
func (u *upstream) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close() // nothing waits for lost requests
		u.mu.Lock()
		delete(u.conns, conn)
		u.mu.Unlock()
	}()
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) > 2 {
			continue
		}
		if _, err := conn.Write([]byte(upstreamAnswer)); err != nil {
			return
		}
	}
}

func (u *upstream) stop() {
	_ = u.listener.Close() // ends accept
	u.mu.Lock()
	for c := range u.conns {
		_ = c.Close() // ends serve
	}
	u.mu.Unlock()
	u.running.Wait()
}
