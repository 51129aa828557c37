//go:build unix && !linux

package http2

import "syscall"

func readOnce(fd uintptr, b []byte) (n int, again bool, err error) { return once(syscall.Read, fd, b) }

func writeOnce(fd uintptr, b []byte) (n int, again bool, err error) {
	return once(syscall.Write, fd, b)
}
