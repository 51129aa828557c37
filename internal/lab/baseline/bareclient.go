package baseline

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/poll"
)

// BareClients are n connections to a server of bare TCP that answer each message. Like a fleet's proxies they use a
// few loops if the system has them, else a goroutine each.
type BareClients struct {
	n     int
	round atomic.Pointer[fleet.Round]
	loops *poll.Loops // nil: not supported
	conns []io.Closer
	ended sync.WaitGroup
}

// DialBare connects.
func DialBare(ctx context.Context, addr string, n int) (*BareClients, error) {
	b := &BareClients{n: n, loops: poll.Start()}
	var d net.Dialer
	for i := range n {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			if _, err = io.ReadFull(c, make([]byte, len(welcome))); err != nil {
				c.Close()
			}
		}
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("bare TCP: %w", err)
		}
		b.start(&bareClient{b, i, 0}, c)
	}
	return b, nil
}

// start lets a client answer messages.
func (b *BareClients) start(client *bareClient, c net.Conn) {
	if b.loops != nil {
		if polled, err := poll.Take(c); err == nil {
			b.conns = append(b.conns, ender{polled})
			b.ended.Go(func() {
				_ = polled.Serve(b.loops.Next(), client) // ends with the server or with Close
				polled.Close()
			})
			return
		}
	}
	b.conns = append(b.conns, c)
	b.ended.Go(func() { client.read(c) })
}

// ender ends a Conn in its loop, which closes it.
type ender struct{ conn *poll.Conn }

func (e ender) Close() error {
	e.conn.End()
	return nil
}

// bareClient is one connection.
type bareClient struct {
	*BareClients
	index int
	come  int // bytes of an incomplete message
}

var bareAnswer = make([]byte, BareAnswer)

// Ready implements poll.Handler.
func (b *bareClient) Ready(c *poll.Conn, buf []byte, _ bool) bool {
	n, err := c.Read(buf)
	return err == nil && b.answer(n, c) == nil
}

func (b *bareClient) read(c net.Conn) {
	buf := make([]byte, BareMessage)
	for {
		n, err := c.Read(buf)
		if err != nil || b.answer(n, c) != nil {
			return
		}
	}
}

// answer counts n more bytes and answers the complete messages.
func (b *bareClient) answer(n int, to io.Writer) error {
	for b.come += n; b.come >= BareMessage; b.come -= BareMessage {
		if _, err := to.Write(bareAnswer); err != nil {
			return err
		}
		if r := b.round.Load(); r != nil {
			r.Record(b.index)
		}
	}
	return nil
}

// Expect begins a round that ends when all have answered one message.
func (b *BareClients) Expect() *fleet.Round {
	r := fleet.NewRound(b.n)
	b.round.Store(r)
	return r
}

// Close disconnects.
func (b *BareClients) Close() {
	for _, c := range b.conns {
		c.Close()
	}
	b.ended.Wait()
	b.loops.Stop()
}
