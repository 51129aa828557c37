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

// Process says which process an Envoy is, so that others on its machine find it, also from
// outside of its container.
type Process struct {
	PID       int    `json:"pid"`                    // in its own namespace
	Namespace string `json:"pidNamespace,omitempty"` // of process ids, as the kernel calls it
	Boot      string `json:"boot,omitempty"`         // the kernel's, new at each start of the machine
}

// ErrElsewhere tells that a process is on another machine.
var ErrElsewhere = errors.New("it runs on another machine")

// Identify tells about a process of this machine, whose id is seen in proc. Where we may not
// read its namespace it is taken to be ours, as its id is seen here.
func Identify(proc string, pid int) Process {
	namespace, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns", "pid"))
	if err != nil {
		namespace, _ = os.Readlink(filepath.Join(proc, "self/ns/pid")) // elsewhere than on Linux there is none
	}
	return Process{PID: pid, Namespace: namespace, Boot: boot(proc)}
}

func boot(proc string) string {
	b, _ := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id")) // only Linux has it
	return strings.TrimSpace(string(b))
}

// Find gives the id that the process has in proc.
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
	return 0, fmt.Errorf("process %d of namespace %s is not seen from here: are you root on its machine?", p.PID, p.Namespace)
}

// innermost is the last of the ids that a process has: NSpid lists them from the reader's
// namespace to the process's own.
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
