package workers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process identifies the process of an Envoy on its machine, also from outside of its container.
type Process struct {
	PID       int    `json:"pid"`                    // in its own PID namespace
	Namespace string `json:"pidNamespace,omitempty"` // PID namespace, as the kernel names it
	Boot      string `json:"boot,omitempty"`         // boot id, which changes with each start of the machine
}

// ErrElsewhere means that a process runs on another machine.
var ErrElsewhere = errors.New("it runs on another machine")

// Identify describes the process with an id in proc. If its namespace cannot be read, Identify assumes this process's
// namespace, because the id is visible here.
func Identify(proc string, pid int) Process {
	namespace, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns", "pid"))
	if err != nil {
		namespace, _ = os.Readlink(filepath.Join(proc, "self/ns/pid")) // only Linux has it
	}
	return Process{PID: pid, Namespace: namespace, Boot: boot(proc)}
}

func boot(proc string) string {
	b, _ := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id")) // only Linux has it
	return strings.TrimSpace(string(b))
}

// Find returns the id of the process in proc.
func (p Process) Find(proc string) (int, error) {
	if p.Boot == "" || p.Boot != boot(proc) {
		return 0, ErrElsewhere
	}
	if own, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err == nil && own == p.Namespace {
		return p.PID, nil
	}
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		namespace, err := os.Readlink(filepath.Join(dir, "ns", "pid"))
		if err == nil && namespace == p.Namespace && slices.Contains(innermost(dir), strconv.Itoa(p.PID)) {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, fmt.Errorf("process %d of namespace %s is not visible: run this command as root on its machine", p.PID, p.Namespace)
}

// innermost returns the id of a process in its own namespace. NSpid lists its ids from the reader's namespace to its own.
func innermost(dir string) []string {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil // it has ended
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(ids)
			return f[max(0, len(f)-1):]
		}
	}
	return nil
}
