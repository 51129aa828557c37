// The program pause is process 1 of a Pod's sandbox. It holds the Pod's namespaces until it gets a signal, and reaps
// processes that lost their parents.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for reaped := true; reaped; {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			reaped = err == nil && pid > 0
		}
	}
}
