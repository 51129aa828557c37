package baseline

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
)

// Sizes of the messages on bare TCP: a small change, and its ACK.
const (
	BareMessage = 700
	BareAnswer  = 60
)

// welcome is sent when a connection receives broadcasts: a connection is open before it is accepted.
var welcome = []byte{1}

// bare has the connections of bare TCP.
type bare struct {
	answered *answered

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// serveBare writes a message to every connection for each batch of changed files.
func serveBare(ctx context.Context, o Options, ln net.Listener, last *answered) error {
	b := &bare{answered: last, conns: map[net.Conn]struct{}{}}
	wait, err := watch(ctx, o.Dir, func([]string) { b.broadcast() })
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	announce(o, ln)
	var ended sync.WaitGroup
	for {
		c, err := ln.Accept()
		if err != nil {
			b.closeAll()
			ended.Wait()
			if ctx.Err() != nil {
				return wait()
			}
			return err
		}
		b.mu.Lock()
		b.conns[c] = struct{}{}
		b.mu.Unlock()
		ended.Go(func() {
			_, _ = c.Write(welcome) // the reader notices a closed connection
			b.readAnswers(c)
		})
	}
}

func (b *bare) readAnswers(c net.Conn) {
	answer := make([]byte, BareAnswer)
	for {
		if _, err := io.ReadFull(c, answer); err != nil {
			break
		}
		b.answered.now()
	}
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	c.Close()
}

func (b *bare) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.Close()
	}
}

// broadcast writes from one goroutine for each CPU.
func (b *bare) broadcast() {
	shards := make([][]net.Conn, runtime.GOMAXPROCS(0))
	b.mu.Lock()
	n := 0
	for c := range b.conns {
		shards[n%len(shards)] = append(shards[n%len(shards)], c)
		n++
	}
	b.mu.Unlock()
	b.answered.ask(n)
	message := make([]byte, BareMessage)
	var done sync.WaitGroup
	for _, s := range shards {
		done.Go(func() {
			for _, c := range s {
				_, _ = c.Write(message) // the reader notices a closed connection
			}
		})
	}
	done.Wait()
}
