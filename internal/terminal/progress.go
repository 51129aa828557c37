package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress shows that work is under way, and for how long. It writes nothing during the first
// quietTime. On a terminal it is one line that counts seconds and disappears at Done.
// In a file or a pipe it is one line each plainInterval.
type Progress struct {
	w        io.Writer
	style    Style
	terminal bool
	started  time.Time
	stop     chan struct{} // closed by Done
	ended    chan struct{} // closed when the goroutine of StartProgress ends

	mu    sync.Mutex    // guards all below and writes to w
	label string        // the work under way
	shown bool          // the line is on the terminal
	next  time.Duration // when to write the next line in a file or a pipe
}

const (
	quietTime     = 2 * time.Second
	progressTick  = time.Second
	plainInterval = 10 * time.Second // between lines in a file or a pipe
)

// StartProgress shows label on w, usually standard error, until Done.
// The caller must call Done.
func StartProgress(w io.Writer, label string) *Progress {
	p := newProgress(w, label, IsTerminal(w))
	p.started = time.Now()
	go p.run()
	return p
}

func newProgress(w io.Writer, label string, terminal bool) *Progress {
	return &Progress{
		w: Raw(w), style: StyleFor(w), terminal: terminal, label: label, next: quietTime,
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Update replaces the label.
func (p *Progress) Update(label string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if label != p.label {
		p.label, p.next = label, 0
	}
}

// Done ends the progress and clears its line on a terminal.
func (p *Progress) Done() {
	close(p.stop)
	<-p.ended
	p.clear()
}

func (p *Progress) run() {
	defer close(p.ended)
	tick := time.NewTicker(progressTick)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-tick.C:
			p.tick(now.Sub(p.started))
		}
	}
}

// tick shows the state after the elapsed time.
func (p *Progress) tick(elapsed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if elapsed < quietTime {
		return
	}
	took := elapsed.Round(time.Second).String()
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s %s", Escape(p.label), p.style.Dim(took))
		p.shown = true
	case elapsed >= p.next:
		fmt.Fprintf(p.w, "%s (%s)\n", Escape(p.label), took)
		p.next = elapsed + plainInterval
	}
}

func (p *Progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
