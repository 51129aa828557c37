package intercept

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Within runs f in the network namespace that a file represents, for example /var/run/netns/NAME or /proc/PID/ns/net.
// It needs CAP_SYS_ADMIN. Goroutines that f starts run in the namespace of the process; commands that f runs do not.
func Within(file string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// Not unlocked: the thread ends with the goroutine, so that no other goroutine runs in the namespace.
		runtime.LockOSThread()
		if err := enter(file); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

// enter moves the calling thread into a network namespace.
func enter(file string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", file, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace %s: enter: %w", file, err)
	}
	return nil
}
