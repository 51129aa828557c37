package http2

import "github.com/moonsail/moonsail/internal/xds/epoll"

func readOnce(fd uintptr, b []byte) (n int, again bool, err error) { return once(epoll.Receive, fd, b) }

func writeOnce(fd uintptr, b []byte) (n int, again bool, err error) { return once(epoll.Send, fd, b) }
