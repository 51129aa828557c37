// Package epoll has few goroutines wait for many descriptors, which are of sockets, say. It is there on Linux only.
package epoll
