//go:build !unix

package session

// RaiseFileLimit does nothing. This system has no such limit.
func RaiseFileLimit(uint64) error { return nil }
