//go:build !unix

package propagation

// raiseFileLimit has nothing to do where there is no such limit.
func raiseFileLimit(uint64) error { return nil }
