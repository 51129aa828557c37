// Package epoll waits for many sockets with few goroutines, with epoll. It exists on Linux only.
package epoll
