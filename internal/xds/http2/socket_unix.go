//go:build unix

package http2

import "syscall"

// nonBlocking reports whether sockets can be read and written without waiting.
const nonBlocking = true

// readOnce reads what there is. again reports that there is nothing.
func readOnce(fd uintptr, b []byte) (n int, again bool, err error) {
	return retryEINTR(syscall.Read, fd, b)
}

// writeOnce writes what the kernel takes. again reports that it takes nothing.
func writeOnce(fd uintptr, b []byte) (n int, again bool, err error) {
	return retryEINTR(syscall.Write, fd, b)
}

// retryEINTR repeats a system call while it is interrupted.
func retryEINTR(do func(int, []byte) (int, error), fd uintptr, b []byte) (n int, again bool, err error) {
	for {
		n, err = do(int(fd), b) //nolint:gosec // descriptors are small
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, true, nil
		}
		return max(n, 0), false, err
	}
}
