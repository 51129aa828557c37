package fleet

import (
	"net"

	"github.com/moonsail/moonsail/internal/lab/poll"
)

// readBuffer is what a goroutine that waits for its proxy's stream reads at once.
const readBuffer = 8 << 10

// read takes what comes in the proxy's own goroutine, until the stream ends. Answers go when
// all that came was taken, as Envoy's.
func (p *Proxy) read(c net.Conn) error {
	b := make([]byte, readBuffer)
	for {
		if err := p.pause(); err != nil {
			return err
		}
		n, err := c.Read(b)
		if n > 0 {
			// Not at the stream's end: a proxy that is held connects again.
			if err = p.pause(); err == nil {
				err = p.receive(b[:n])
			}
		}
		if err != nil {
			return err
		}
	}
}

// follow has a loop take what comes, but for the time in which the proxy is held.
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

// inLoop is a proxy whose stream a loop waits for.
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

// receive takes bytes as they came, and answers.
func (p *Proxy) receive(b []byte) error {
	if err := p.conn.receive(b, p.handle); err != nil {
		return err
	}
	return p.flush()
}
