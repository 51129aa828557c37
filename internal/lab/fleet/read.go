package fleet

import (
	"net"

	"github.com/moonsail/moonsail/internal/lab/poll"
)

// readBuffer is what a proxy's goroutine reads at once.
const readBuffer = 8 << 10

// read processes received bytes in the proxy's goroutine, until the stream ends. It answers when all received bytes are
// processed, as Envoy does.
func (p *Proxy) read(c net.Conn) error {
	b := make([]byte, readBuffer)
	for {
		if err := p.pause(); err != nil {
			return err
		}
		n, err := c.Read(b)
		if n > 0 {
			// Not at the end of a stream: a held proxy reconnects.
			if err = p.pause(); err == nil {
				err = p.receive(b[:n])
			}
		}
		if err != nil {
			return err
		}
	}
}

// follow lets a loop process received bytes, except while the proxy is held.
func (p *Proxy) follow(l *poll.Loop, c *poll.Conn) error {
	defer c.Close()
	p.conn.out = c
	for p.failure = nil; p.failure == nil; {
		if err := p.pause(); err != nil {
			return err
		}
		if err := c.Serve(l, inLoop{p}); err != nil {
			return err
		}
	}
	return p.failure
}

// inLoop is a proxy whose stream is in a loop.
type inLoop struct{ *Proxy }

// Ready implements poll.Handler.
func (p inLoop) Ready(c *poll.Conn, buf []byte, gone bool) bool {
	if p.hold.Load() != nil && !gone {
		return false
	}
	n, err := c.Read(buf)
	if n > 0 {
		err = p.receive(buf[:n])
	}
	p.failure = err
	return err == nil
}

// receive processes received bytes, and answers.
func (p *Proxy) receive(b []byte) error {
	if err := p.conn.receive(b, p.handle); err != nil {
		return err
	}
	return p.flush()
}
