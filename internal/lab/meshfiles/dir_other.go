//go:build !linux

package meshfiles

// parentDir is where a run's directory is made; empty: where temporary files are.
func parentDir() string { return "" }
