package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/scrape"
)

// Istio's environment variables that become metadata of the node.
const (
	// MetadataPrefix begins the variables ISTIO_META_X=v, which set X to v.
	MetadataPrefix = "ISTIO_META_"
	metaJSONPrefix = "ISTIO_METAJSON_"
)

// MetadataFromEnv collects metadata of the node from an environment ("NAME=value" words), as Istio does. ISTIO_META_X=v
// sets X to v. ISTIO_METAJSON_X holds a JSON object of metadata, ISTIO_METAJSON_LABELS one of labels.
func MetadataFromEnv(environ []string) (metadata map[string]any, labels map[string]string, err error) {
	metadata = map[string]any{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if key, ok := strings.CutPrefix(name, MetadataPrefix); ok && value != "" {
			metadata[key] = value
		}
		if _, ok := strings.CutPrefix(name, metaJSONPrefix); !ok || value == "" {
			continue
		}
		var into any = &metadata
		if name == metaJSONPrefix+"LABELS" {
			into = &labels
		}
		if err := json.Unmarshal([]byte(value), into); err != nil {
			return nil, nil, fmt.Errorf("environment variable %s: not a JSON object of the expected form: %w", name, err)
		}
	}
	return metadata, labels, nil
}

const (
	mountedCertsVariable   = "FILE_MOUNTED_CERTS"
	workloadSocketVariable = "WORKLOAD_IDENTITY_SOCKET_FILE"
)

// Variables are Istio's environment variables that the agent reads itself. Flags read others.
var Variables = []string{
	mountedCertsVariable, workloadSocketVariable, cpuLimitVariable, scrape.AppVariable, appprobe.ProbersVariable, appprobe.LocalProbesVariable,
	identity.ClusterVariable, MetadataPrefix + maxConnectionsMetadata,
}

// Complete chooses the source of the workload's certificate from the environment, as Istio's agent does, if no field
// names one: files if FILE_MOUNTED_CERTS is true, else the SPIFFE Workload API if its socket is mounted, else the CA at
// CA_ADDR, else that of the control plane. The variables come from proxyMetadata of the sidecar's ProxyConfig.
func (c *CA) Complete(environ []string) error {
	if c.Address != "" || c.MountedCerts != "" || c.WorkloadAPI != "" {
		return nil
	}
	if value := lookup(environ, mountedCertsVariable); value != "" {
		yes, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("environment variable %s: invalid value %q: use true or false", mountedCertsVariable, value)
		}
		if yes {
			c.MountedCerts = MountedCertsDir
			return nil
		}
	}
	if path := workloadSocket(WorkloadAPISocket, environ); path != "" {
		c.WorkloadAPI = "unix://" + path
		return nil
	}
	c.Address = lookup(environ, "CA_ADDR")
	return nil
}

// workloadSocket returns the path of a socket if it exists; else "".
func workloadSocket(path string, environ []string) string {
	if name := lookup(environ, workloadSocketVariable); name != "" {
		path = filepath.Join(filepath.Dir(path), name)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		return ""
	}
	return path
}

// lookup returns the value of an environment variable; "" if it is not set.
func lookup(environ []string, name string) string {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// CPULimit is the number of CPUs that a sidecar may use. The zero value means that it is unknown.
type CPULimit struct {
	CPUs float64
	From string // the source, for messages
}

// cpuLimitVariable holds the container's limits.cpu, or the CPUs of the node if there is no limit. Istio's injector sets
// it.
const cpuLimitVariable = "ISTIO_CPU_LIMIT"

// FindCPULimit reads the limit from the environment, as Istio's agent does, else from the cgroup (version 2) of this
// process and the cgroups above it.
func FindCPULimit(environ []string) (CPULimit, error) {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, cpuLimitVariable+"="); ok && value != "" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || !(n > 0) || math.IsInf(n, 0) {
				return CPULimit{}, fmt.Errorf("environment variable %s: invalid value %q: use a positive number of CPUs", cpuLimitVariable, value)
			}
			return CPULimit{CPUs: n, From: cpuLimitVariable}, nil
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return CPULimit{}, nil // not Linux
	}
	return cgroupLimit("/sys/fs/cgroup", string(own)), nil
}

// cgroupLimit returns the least cpu.max of a cgroup and the cgroups above it.
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

// readCPUMax reads "QUOTA PERIOD", in microseconds, and returns the CPUs; 0: no limit.
func readCPUMax(file string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	words := strings.Fields(string(text))
	if len(words) != 2 {
		return 0
	}
	quota, err := strconv.ParseFloat(words[0], 64) // "max": no limit
	period, err2 := strconv.ParseFloat(words[1], 64)
	if err != nil || err2 != nil || period <= 0 {
		return 0
	}
	return quota / period
}
