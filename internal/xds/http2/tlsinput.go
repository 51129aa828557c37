package http2

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"unsafe"
)

// A tls.Conn keeps the buffer that it has read its largest record into: after one list of
// what a proxy subscribes to, 17 KB and more for as long as the connection lives, which is
// more than all else that a connection takes. It offers no way to let go of it, so this
// package reaches for it.

// rawInput is where a tls.Conn has that buffer; 0: this version of Go has none by that name.
var rawInput = func() uintptr {
	f, ok := reflect.TypeFor[tls.Conn]().FieldByName("rawInput")
	if !ok || f.Type != reflect.TypeFor[bytes.Buffer]() {
		return 0
	}
	return f.Offset
}()

// keepInput is the size of a buffer that is kept.
const keepInput = 4 << 10

func inputOf(c *tls.Conn) *bytes.Buffer {
	if rawInput == 0 {
		return &bytes.Buffer{}
	}
	return (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(c), rawInput))
}

// trim lets go of the buffer where it is large and empty. It must be called by the only
// reader, and when all that was read has been taken: then nothing points into it.
func trim(c *tls.Conn) {
	if b := inputOf(c); b.Len() == 0 && b.Cap() > keepInput {
		*b = bytes.Buffer{}
	}
}
