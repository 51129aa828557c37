package inspect

import (
	"bytes"
	"sync"
)

// maxTail is how many bytes of a log are kept.
const maxTail = 256 << 10

// Tail keeps the end of what is written to it.
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

// last is the end of the text, in whole lines where it was cut; mu is held.
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

// Bytes is a copy of what is kept.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]byte(nil), t.last()...)
}
