package epoll

import "syscall"

// Receive reads from a non-blocking socket, like read(2).
func Receive(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

// Send writes to a non-blocking socket, like write(2).
func Send(fd int, b []byte) (int, error) { return syscall.Write(fd, b) }
