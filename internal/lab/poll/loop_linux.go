package poll

import (
	"syscall"

	"github.com/moonsail/moonsail/internal/xds/epoll"
)

// Loops are some goroutines that wait for sockets.
type Loops = epoll.Loops[Conn]

// Loop is one of them.
type Loop = epoll.Loop[Conn]

// bufferSize is what a loop reads at once.
const bufferSize = 64 << 10

// Start starts a loop for each CPU; nil: not supported. Stop ends them and every Serve. There must be no new ones.
func Start() *Loops { return epoll.Start(run) }

// run is a loop's goroutine.
func run(l *Loop) {
	buf := make([]byte, bufferSize)
	for l.Wait() {
		l.Each(func(c *Conn, events uint32) { c.event(events, buf) })
	}
	for _, c := range l.Left() {
		c.left <- struct{}{}
	}
}

func (c *Conn) event(events uint32, buf []byte) {
	if events&syscall.EPOLLOUT != 0 {
		c.writeRest()
	}
	if events&^syscall.EPOLLOUT == 0 || c.handler.Ready(c, buf, events&(syscall.EPOLLHUP|syscall.EPOLLERR) != 0) {
		return
	}
	c.loop.Drop(c.fd)
	c.left <- struct{}{}
}
