//go:build !unix

package propagation

// raiseFileLimit does nothing: there is no such limit.
func raiseFileLimit(uint64) error { return nil }
