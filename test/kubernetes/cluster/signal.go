package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to the processes of a program that the node itself runs, such as kube-apiserver.
func (c *Cluster) Signal(node, program string, signal unix.Signal) error {
	pid, err := c.pid(node)
	if err != nil {
		return err
	}
	in, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return err
	}
	found := false
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, dir := range processes {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		first, _, _ := bytes.Cut(line, []byte{0})
		if err != nil || filepath.Base(string(first)) != program {
			continue // it has ended, or is another one
		}
		if other, err := os.Readlink(filepath.Join(dir, "ns/pid")); err != nil || other != in {
			continue
		}
		number, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		if err := unix.Kill(number, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		found = true
	}
	if !found {
		return fmt.Errorf("%s runs no program %s", node, program)
	}
	return nil
}
