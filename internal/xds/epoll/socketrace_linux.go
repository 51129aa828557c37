//go:build race

package epoll

import "syscall"

// Where races are looked for, these calls tell that what was done before something was sent comes before what is done
// after it was received.

// Receive is read(2) of a socket.
func Receive(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

// Send is write(2) of a socket.
func Send(fd int, b []byte) (int, error) { return syscall.Write(fd, b) }
