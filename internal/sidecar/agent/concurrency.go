package agent

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// maxConcurrency is far above any machine: more is a mistake, and Envoy would try it.
const maxConcurrency = 1024

// CPULimit is how much of the machine a sidecar may use. The zero value: it is not known.
type CPULimit struct {
	CPUs float64
	From string // for people
}

// resolveConcurrency: what was said, the most specific first; else as many worker threads as
// the CPU limit has whole CPUs, and 1 at least: threads that wait for their share of the same
// CPU cost memory and connections, and give nothing.
func (s *settings) resolveConcurrency() error {
	s.concurrency, s.because = s.chooseConcurrency()
	if s.concurrency < 0 || s.concurrency > maxConcurrency {
		return fmt.Errorf("concurrency is %d, by %s: --concurrency (or concurrency in %s) wants 0 (one thread a core) to %d",
			s.concurrency, s.because, ProxyConfigAnnotation, maxConcurrency)
	}
	if s.concurrency == 0 && s.CPULimit.CPUs > 0 && s.CPULimit.CPUs < float64(runtime.NumCPU()) {
		s.log.Warn("concurrency is 0, a thread for each core, and the CPU limit is less: they will be throttled",
			"cores", runtime.NumCPU(), "limit", s.CPULimit.CPUs, "from", s.CPULimit.From)
	}
	s.proxyConfig.Concurrency = wrapperspb.Int32(int32(s.concurrency))
	return nil
}

func (s *settings) chooseConcurrency() (n int, because string) {
	switch said := s.proxyConfig.GetConcurrency(); {
	case s.Concurrency != nil:
		return *s.Concurrency, "--concurrency"
	case said != nil && s.ProxyConfig.GetConcurrency() != nil && s.ProxyConfig.GetConcurrency().GetValue() == said.GetValue():
		return int(said.GetValue()), "ProxyConfig (--proxy-config)"
	case said != nil:
		return int(said.GetValue()), "annotation " + ProxyConfigAnnotation
	case s.CPULimit.CPUs > 0:
		n := min(max(1, int(s.CPULimit.CPUs)), maxConcurrency)
		return n, fmt.Sprintf("a CPU limit of %g (%s)", s.CPULimit.CPUs, s.CPULimit.From)
	}
	return DefaultConcurrency, "default: no CPU limit is known"
}

// cpuLimitVariable is set by Istio's injector to the container's limits.cpu; without a limit
// that is what the node has.
const cpuLimitVariable = "ISTIO_CPU_LIMIT"

// FindCPULimit looks at the environment, as Istio's agent does, and else at this process's
// cgroup (version 2) and those above it.
func FindCPULimit(environ []string) (CPULimit, error) {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, cpuLimitVariable+"="); ok && value != "" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || !(n > 0) || math.IsInf(n, 0) {
				return CPULimit{}, fmt.Errorf("environment variable %s is %q: it wants a number of CPUs", cpuLimitVariable, value)
			}
			return CPULimit{CPUs: n, From: cpuLimitVariable}, nil
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return CPULimit{}, nil // another system than Linux
	}
	return cgroupLimit("/sys/fs/cgroup", string(own)), nil
}

// cgroupLimit is the least cpu.max of a cgroup and those that it is in.
func cgroupLimit(root, own string) CPULimit {
	var least CPULimit
	for line := range strings.Lines(own) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for dir := filepath.Join("/", path); ; dir = filepath.Dir(dir) {
			file := filepath.Join(root, dir, "cpu.max")
			if n := readCPUMax(file); n > 0 && (least.CPUs == 0 || n < least.CPUs) {
				least = CPULimit{CPUs: n, From: file}
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// readCPUMax reads "QUOTA PERIOD", in microseconds; 0: there is no limit.
func readCPUMax(file string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	words := strings.Fields(string(text))
	if len(words) != 2 {
		return 0
	}
	quota, err := strconv.ParseFloat(words[0], 64) // "max" is none
	period, err2 := strconv.ParseFloat(words[1], 64)
	if err != nil || err2 != nil || period <= 0 {
		return 0
	}
	return quota / period
}
