package cli

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// pilotSwitch is one of istiod's environment variables.
type pilotSwitch struct {
	name string
	// apply honours it and says what it does; "" and nil: it has no meaning here, for why.
	apply func(value string, o *controlplane.Options) (effect string, err error)
	why   string
}

// istioDebounceMax is what PILOT_DEBOUNCE_MAX is where it is not set.
const istioDebounceMax = 10 * time.Second

// switches are those that people know from tuning istiod, in the order in which they are
// read: the bound after what it bounds.
var switches = []pilotSwitch{
	{name: "PILOT_DEBOUNCE_AFTER", apply: func(v string, o *controlplane.Options) (string, error) {
		d, err := positive(v)
		o.Debounce.After, o.Debounce.Max = d, istioDebounceMax
		return fmt.Sprintf("events wait until none has come for %s; without it nothing waits: batches form while the last one is worked on", d), err
	}},
	{name: "PILOT_DEBOUNCE_MAX", apply: func(v string, o *controlplane.Options) (string, error) {
		d, err := positive(v)
		if o.Debounce.After == 0 {
			return "", err
		}
		o.Debounce.Max = d
		return fmt.Sprintf("no event waits longer than %s, counted from when it was seen, also while a batch is worked on", d), err
	}, why: "PILOT_DEBOUNCE_AFTER is not set, so that no event is held back"},
	{name: "PILOT_ENABLE_EDS_DEBOUNCE", apply: func(v string, o *controlplane.Options) (string, error) {
		held, err := strconv.ParseBool(v)
		if o.Debounce.After == 0 {
			return "", err
		}
		o.Debounce.EndpointsPass = !held
		if held {
			return "endpoints wait as other events do", err
		}
		return "endpoints are taken at once, with whatever waits", err
	}, why: "PILOT_DEBOUNCE_AFTER is not set, so that no event is held back"},
	{name: "PILOT_PUSH_THROTTLE", apply: func(v string, o *controlplane.Options) (string, error) {
		n, err := strconv.ParseUint(v, 10, 31)
		if err == nil && n == 0 {
			err = fmt.Errorf("0 would push nothing")
		}
		o.Senders = min(int(n), runtime.GOMAXPROCS(0))
		return fmt.Sprintf("at most %d proxies are pushed to at the same time; there are never more pushes than CPUs, as none waits for a proxy", o.Senders), err
	}},
	{name: "PILOT_ENABLE_IP_AUTOALLOCATE", apply: func(v string, o *controlplane.Options) (string, error) {
		on, err := strconv.ParseBool(v)
		o.Mesh.AutoAddresses.Off = !on
		if on {
			return "ServiceEntries without addresses get some, which sidecars use that capture DNS; that is so without it, too", err
		}
		return "ServiceEntries without addresses get none, but for proxies that say DNS_AUTO_ALLOCATE; statuses have no addresses written", err
	}},
	{name: "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", apply: func(v string, o *controlplane.Options) (effect string, err error) {
		o.Mesh.AutoAddresses.V4, err = prefixFor(v, 32)
		return "ServiceEntries without addresses get one of " + v, err
	}},
	{name: "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", apply: func(v string, o *controlplane.Options) (effect string, err error) {
		o.Mesh.AutoAddresses.V6, err = prefixFor(v, 128)
		return "ServiceEntries without addresses get one of " + v, err
	}},
	{name: "PILOT_ENABLE_CDS_CACHE", apply: aBool, why: "ignored: Moonsail has no such cache; it encodes a cluster once when it changes, and all proxies share that"},
	{name: "PILOT_ENABLE_RDS_CACHE", apply: aBool, why: "ignored: Moonsail has no such cache; it encodes a route once when it changes, and all proxies share that"},
	{name: "ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS", apply: aBool, why: "pilot_worker_queue_depth, _latency and _duration are always there"},
}

// prefixFor reads a range of addresses of so many bits.
func prefixFor(v string, bits int) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	switch {
	case err != nil:
		return p, fmt.Errorf("not an address range: use a form like 240.240.0.0/16 or 2001:2::/48")
	case p.Addr().BitLen() != bits:
		return p, fmt.Errorf("it is of the other IP family")
	case p.Bits() > bits-2:
		return p, fmt.Errorf("the range is too small: its first and last address are never allocated")
	}
	return p.Masked(), nil
}

func positive(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err == nil && d < 0 {
		err = fmt.Errorf("it is negative")
	}
	return d, err
}

// aBool is a switch without meaning here; a wrong value is told all the same.
func aBool(v string, _ *controlplane.Options) (string, error) {
	_, err := strconv.ParseBool(v)
	return "", err
}

// pilotSwitches reads istiod's switches, and tells of each that is set what it does here, or
// why it means nothing.
func pilotSwitches(o *controlplane.Options, lookup func(string) (string, bool), log *slog.Logger) error {
	for _, s := range switches {
		v, ok := lookup(s.name)
		if !ok || v == "" {
			continue
		}
		effect, err := s.apply(v, o)
		if err != nil {
			return terminal.UsageError{Err: fmt.Errorf("environment variable %s=%s: %w", s.name, v, err)}
		}
		if effect != "" {
			log.Info("istiod's switch is honoured", "switch", s.name, "value", v, "effect", effect)
		} else {
			log.Warn("istiod's switch has no meaning here", "switch", s.name, "value", v, "why", s.why)
		}
	}
	return nil
}

// IstiodVariable is an environment variable of istiod that serve reads, and what a value of it does.
type IstiodVariable struct {
	Name, Value string
	Effect      string // empty: the variable has no meaning here
	Why         string // the reason, where it has none
}

// IstiodVariables returns the effect of each variable with the given values, in the order in which serve reads them.
func IstiodVariables(values map[string]string) ([]IstiodVariable, error) {
	o := controlplane.Options{Mesh: &model.Mesh{}}
	var out []IstiodVariable
	for _, s := range switches {
		v := IstiodVariable{Name: s.name, Value: values[s.name], Why: s.why}
		var err error
		if v.Effect, err = s.apply(v.Value, &o); err != nil {
			return nil, fmt.Errorf("environment variable %s=%s: %w", v.Name, v.Value, err)
		}
		out = append(out, v)
	}
	return out, nil
}
