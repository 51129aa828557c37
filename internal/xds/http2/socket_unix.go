//go:build unix

package http2

import "syscall"

// nonBlocking: sockets can be read and written without waiting.
const nonBlocking = true

func once(do func(int, []byte) (int, error), fd uintptr, b []byte) (n int, again bool, err error) {
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
