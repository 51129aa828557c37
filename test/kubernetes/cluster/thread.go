package cluster

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs f on a thread that ends with f, and with it what f changes of the thread: its namespaces and control groups.
// The main thread of a process does not end, so f does not run on it.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // not unlocked, so that the thread ends
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		started := make(chan struct{})
		onOwnThread(func() { close(started); f() }) // this goroutine keeps the main thread until f has another one
		<-started
		runtime.UnlockOSThread()
	}()
}
