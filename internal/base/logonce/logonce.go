// Package logonce decides which errors of a repeated attempt are logged.
package logonce

import "sync"

// Problem is the error of the last of repeated attempts, for those who ask. Pass it each result, also nil. The zero value is
// ready, and its methods may be called by several goroutines.
type Problem struct {
	mu   sync.Mutex // guards text
	text string     // empty: the last attempt succeeded
}

// Note records the result of an attempt. It reports whether a problem with another text than before begins, and whether a
// problem ends.
func (p *Problem) Note(err error) (began, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.text
	if p.text = ""; err != nil {
		p.text = err.Error()
	}
	return err != nil && p.text != before, err == nil && before != ""
}

// Text returns the error of the last attempt; empty: it succeeded.
func (p *Problem) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// Errors has the errors of one attempt that is repeated. Pass it each result, also nil. The zero value is ready, and its
// methods may be called by several goroutines.
type Errors struct {
	mu   sync.Mutex // guards last
	last string     // empty: the last attempt succeeded
}

// New reports whether err is an error with another text than the last one.
func (e *Errors) New(err error) bool { return e.replace(err) != text(err) && err != nil }

// First reports whether err is the first error since a success. Use it for errors whose texts differ without meaning, such as
// those with ports or names of objects.
func (e *Errors) First(err error) bool { return e.replace(err) == "" && err != nil }

func (e *Errors) replace(err error) (last string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, e.last = e.last, text(err)
	return last
}

// text is not empty for an error.
func text(err error) string {
	if err == nil {
		return ""
	}
	return "error: " + err.Error()
}
