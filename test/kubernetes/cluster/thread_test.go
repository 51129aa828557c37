package cluster

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnOwnThread checks that functions never run on the main thread, which would not end with them.
func TestOnOwnThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one thread at a time, so that the main thread is often the one
	for range 500 {
		thread := make(chan int)
		onOwnThread(func() { thread <- unix.Gettid() })
		if got := <-thread; got == os.Getpid() {
			t.Fatal("the function ran on the main thread")
		}
	}
}
