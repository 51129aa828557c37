package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// isolated is set in the environment of a test binary, and of its children, that runs in a separate network namespace.
const isolated = "MOONSAIL_TEST_ISOLATED"

// Isolate moves the test binary into a new network namespace, in which all ports are free and no other process
// listens. Call it first in TestMain: it executes the binary again, with the same process ID.
//
// It takes root. Without root, tests share the machine's ports, at loopback addresses that differ by process; a
// process that listens on a sidecar's port at all addresses (0.0.0.0) makes them fail.
func Isolate() {
	if os.Geteuid() != 0 || os.Getenv(isolated) != "" {
		return
	}
	if err := isolate(); err != nil {
		fmt.Fprintf(os.Stderr, "network namespace: %v: tests share the machine's ports\n", err)
		if os.Getenv(RequireVariable) != "" {
			os.Exit(1)
		}
	}
}

// isolate does not return if it succeeds. The kernel assigns the namespace to the calling thread, which becomes the
// process when it executes the binary.
func isolate() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // not unlocked: no other goroutine may use a thread in another namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	return fmt.Errorf("exec %s: %w", self, unix.Exec(self, os.Args, append(os.Environ(), isolated+"=1")))
}

// loopbackUp turns on the interface lo, with 127.0.0.0/8 and ::1, in the thread's namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
