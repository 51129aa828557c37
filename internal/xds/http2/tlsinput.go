package http2

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"sync"
	"unsafe"
)

// A tls.Conn keeps the buffer that it has read its largest record into: after one list of
// what a proxy subscribes to, 17 KB and more for as long as the connection lives, which is
// more than all else that a connection takes. It keeps that of its handshake's messages, too.
// It offers no way to let go of them, so this package reaches for them.

// Where a tls.Conn has them, and what points into the first; 0: this version of Go has none by
// that name.
var (
	rawInput  = fieldAt[bytes.Buffer]("rawInput")
	decrypted = fieldAt[bytes.Reader]("input")
	handshake = fieldAt[bytes.Buffer]("hand")
)

func fieldAt[T any](name string) uintptr {
	f, ok := reflect.TypeFor[tls.Conn]().FieldByName(name)
	if !ok || f.Type != reflect.TypeFor[T]() {
		return 0
	}
	return f.Offset
}

// fieldOf is a connection's field, or another one where it has none there.
func fieldOf[T any](c *tls.Conn, at uintptr) *T {
	if at == 0 {
		return new(T)
	}
	return (*T)(unsafe.Add(unsafe.Pointer(c), at))
}

// smallInput is the size of the buffers that connections are lent: most records that a proxy
// sends have less.
const smallInput = 4 << 10

var smallInputs = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, smallInput)) }}

// lend gives a connection that has no buffer one to read a record into.
func lend(c *tls.Conn) {
	if b := fieldOf[bytes.Buffer](c, rawInput); b.Cap() == 0 && rawInput != 0 && decrypted != 0 {
		*b = *smallInputs.Get().(*bytes.Buffer)
	}
}

// takeBack lets go of the buffers where they are empty. It must be called by the only reader,
// and when all that was read has been taken: then nothing is read from them any more.
func takeBack(c *tls.Conn) {
	b, in := fieldOf[bytes.Buffer](c, rawInput), fieldOf[bytes.Reader](c, decrypted)
	if b.Len() == 0 && in.Len() == 0 {
		if *in = (bytes.Reader{}); b.Cap() == smallInput && decrypted != 0 {
			b.Reset()
			again := *b
			smallInputs.Put(&again)
		}
		*b = bytes.Buffer{}
	}
	if b := fieldOf[bytes.Buffer](c, handshake); b.Len() == 0 {
		*b = bytes.Buffer{}
	}
}
