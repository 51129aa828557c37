package floor

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/lab/fleet"
)

// BareClients are n connections to a server of bare TCP that answer each message.
type BareClients struct {
	n     int
	round atomic.Pointer[fleet.Round]
	conns []net.Conn
	ended sync.WaitGroup
}

// DialBare connects.
func DialBare(ctx context.Context, addr string, n int) (*BareClients, error) {
	b := &BareClients{n: n}
	var d net.Dialer
	for i := range n {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("bare TCP: %w", err)
		}
		b.conns = append(b.conns, c)
		if _, err := io.ReadFull(c, make([]byte, len(welcome))); err != nil {
			b.Close()
			return nil, fmt.Errorf("bare TCP: %w", err)
		}
		b.ended.Go(func() { b.answer(i, c) })
	}
	return b, nil
}

func (b *BareClients) answer(i int, c net.Conn) {
	message, answer := make([]byte, BareMessage), make([]byte, BareAnswer)
	for {
		if _, err := io.ReadFull(c, message); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
		if r := b.round.Load(); r != nil {
			r.Record(i)
		}
	}
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
}
