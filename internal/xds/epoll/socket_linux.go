//go:build !race

package epoll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Receive is read(2) of a socket, and Send is write(2). By calls that are for sockets alone they take a tenth (writing) and a fifth
// (reading) less time than by those that are for files, too.
func Receive(fd int, b []byte) (int, error) { return transfer(unix.SYS_RECVFROM, fd, b, 0) }

// Send is write(2) of a socket; see Receive.
func Send(fd int, b []byte) (int, error) { return transfer(unix.SYS_SENDTO, fd, b, unix.MSG_NOSIGNAL) }

func transfer(call uintptr, fd int, b []byte, flags uintptr) (int, error) {
	n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0) //nolint:gosec // descriptors are not negative
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil //nolint:gosec // it is at most the length of b
}
