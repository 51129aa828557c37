//go:build !linux

package http2

import "errors"

// loops do not exist on this system.
type loops struct{}

// loop is one of loops.
type loop struct{}

// startLoops returns nil.
func startLoops(func()) *loops { return nil }

// Stop does nothing.
func (*loops) Stop() {}

// moveToLoop does nothing: connections have their goroutines.
func (*conn) moveToLoop(*loops) {}

func (*polled) shut(int) error { return errors.ErrUnsupported }

func (*polled) close() {}
