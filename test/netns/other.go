//go:build !linux

package netns

// Isolate does nothing: tests share the machine's ports.
func Isolate() {}
