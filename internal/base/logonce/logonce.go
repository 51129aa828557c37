// Package logonce decides which errors of a repeated attempt are logged.
package logonce

import "sync"

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
