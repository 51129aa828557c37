package agent

import (
	"os"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// Where Linux says what may listen on which ports.
const (
	freePortsFile = "/proc/sys/net/ipv4/ip_unprivileged_port_start" // of this network namespace
	rightsFile    = "/proc/self/status"
)

// bindService is the number of CAP_NET_BIND_SERVICE.
const bindService = 10

// tellPrivilege says that Envoy may not listen on all ports, unless somebody has said what is so.
func (a *agent) tellPrivilege() {
	if _, said := a.node.metadata[agentapi.MetaUnprivileged]; said || a.Type != model.ProxySidecar || a.opensAnyPort() {
		return
	}
	a.node.metadata[agentapi.MetaUnprivileged] = "true"
	if a.Interception == model.InterceptNone {
		a.log.Warn("Envoy may not listen on ports below 1024: services on such ports are not reached by it, as connections are not "+
			"intercepted; set the sysctl net.ipv4.ip_unprivileged_port_start to 0", "uid", os.Geteuid())
	}
}

// opensAnyPort tells whether Envoy may listen on ports below 1024; where it is not known, it may.
func (a *agent) opensAnyPort() bool {
	from, err := os.ReadFile(freePortsFile)
	if n, e := strconv.Atoi(strings.TrimSpace(string(from))); err != nil || e != nil || n < model.PrivilegedPorts {
		return true
	}
	// What root starts has what it may have at all, and what others start what they pass on.
	field := "CapAmb"
	if os.Geteuid() == 0 {
		field = "CapBnd"
	}
	rights, err := os.ReadFile(rightsFile)
	return err != nil || a.envoyUser() == nil && hasRight(string(rights), field, bindService)
}

// hasRight looks for a capability in a set of /proc/PID/status.
func hasRight(status, set string, capability int) bool {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, set+":"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && bits>>capability&1 == 1
		}
	}
	return false
}
