package inspect

import (
	"bytes"
	"sync"
)

// maxTail is the size of the kept end of a log, in bytes.
const maxTail = 256 << 10

// Tail keeps the end of the text that is written to it.
type Tail struct {
	mu   sync.Mutex // guards text
	text []byte     // at most 2*maxTail
}

// Write implements io.Writer; it never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > 2*maxTail {
		t.text = append([]byte(nil), t.last()...)
	}
	return len(p), nil
}

// last returns the end of the text. If it was cut, it begins with a whole line. mu is held.
func (t *Tail) last() []byte {
	if len(t.text) <= maxTail {
		return t.text
	}
	cut := t.text[len(t.text)-maxTail:]
	if i := bytes.IndexByte(cut, '\n'); i >= 0 {
		return cut[i+1:]
	}
	return cut
}

// Bytes returns a copy of the kept text.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]byte(nil), t.last()...)
}
