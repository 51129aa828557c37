package experiment

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Machine describes the machine of an experiment.
type Machine struct {
	CPUs       int     `json:"cpus"` // that this process may use
	CPU        string  `json:"cpu,omitempty"`
	MemoryMB   int64   `json:"memory_mb,omitempty"`
	OS         string  `json:"os"` // "linux/amd64"
	Kernel     string  `json:"kernel,omitempty"`
	Go         string  `json:"go"`
	Envoy      string  `json:"envoy,omitempty"`
	LoadBefore float64 `json:"load_before"` // average of a minute
	LoadAfter  float64 `json:"load_after"`  // average of a minute; most of it is the experiment's
}

// ThisMachine describes this machine; binary is Envoy's, if any. Unknown facts are left out.
func ThisMachine(ctx context.Context, binary string) Machine {
	m := Machine{
		CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		CPU: field("/proc/cpuinfo", "model name"), Kernel: firstLine("/proc/sys/kernel/osrelease"), LoadBefore: LoadAverage(),
	}
	if words := strings.Fields(field("/proc/meminfo", "MemTotal")); len(words) > 0 {
		if kib, err := strconv.ParseInt(words[0], 10, 64); err == nil {
			m.MemoryMB = kib >> 10
		}
	}
	if binary != "" {
		if v, err := envoy.VersionOf(ctx, binary); err == nil {
			m.Envoy = v
		}
	}
	return m
}

// Busy reports whether something else ran when the experiment began.
func (m *Machine) Busy() bool { return m.LoadBefore > 0.5*float64(m.CPUs) }

// field returns the first "name : value" of a file.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// LoadAverage returns that of the last minute, or 0 if it is unknown.
func LoadAverage() float64 {
	word, _, _ := strings.Cut(firstLine("/proc/loadavg"), " ")
	load, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return 0
	}
	return load
}

// Line describes the machine in one line.
func (m *Machine) Line() string {
	text := fmt.Sprintf("%d CPUs (%s), %d MB, %s %s", m.CPUs, m.CPU, m.MemoryMB, m.OS, m.Kernel)
	if m.Envoy != "" {
		text += ", Envoy " + m.Envoy
	}
	return text + fmt.Sprintf(", load %.2f before and %.2f after", m.LoadBefore, m.LoadAfter)
}
