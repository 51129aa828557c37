package doctor

import (
	"fmt"
	"time"
)

func (p *plane) configErrors() verdict {
	const metric = "moonsail_configuration_errors"
	if !p.now.Has(metric) {
		return nothing
	}
	n := p.now.Sum(metric)
	if n == 0 {
		return checked()
	}
	return checked(Finding{
		Severity: Warning, What: "objects or files have errors, so their newest version is not in force, or only in part", Evidence: []string{fmt.Sprintf("%s %.0f", metric, n)},
		Advice: []string{"list the errors with 'moonsail analyze', in the directory or the cluster; 'moonsail explain OBJECT' shows those of one object"},
	})
}

// contradictions are gauges of istiod that count conflicting or dangling objects.
var contradictions = map[string]string{
	"pilot_conflict_outbound_listener_tcp_over_current_tcp": "TCP services on one port without addresses: calls to one go to the other; add addresses to the ServiceEntries",
	"pilot_conflict_inbound_listener":                       "services of a workload on one port with different protocols",
	"pilot_vservice_dup_domain":                             "VirtualServices with the same host: all but the oldest are ignored; merge them, or delegate",
	"pilot_duplicate_envoy_clusters":                        "clusters with one name: the first one is used",
	"pilot_destrule_subsets":                                "subsets with one name in several DestinationRules of a host",
	"pilot_no_ip":                                           "endpoints whose Pods have no address",
	"endpoint_no_pod":                                       "endpoints without a known Pod, and so without an identity",
}

func (p *plane) conflicts() verdict {
	looked := false
	var f []Finding
	for _, metric := range sortedKeys(contradictions) {
		looked = looked || p.now.Has(metric)
		if n := p.now.Sum(metric); n > 0 {
			f = append(f, Finding{
				Severity: Warning, What: contradictions[metric], Evidence: []string{fmt.Sprintf("%s %.0f", metric, n)},
				Advice: []string{"find the objects with 'moonsail analyze', in a directory or a cluster ('istioctl analyze' finds some)"},
			})
		}
	}
	if !looked {
		return nothing
	}
	return checked(f...)
}

// busyFrom is the share of its CPUs from which on a control plane has no reserve for a storm of changes.
const busyFrom = 0.7

func (p *plane) cpu() verdict {
	limit := p.now.Sum("go_sched_gomaxprocs_threads")
	if p.over <= 0 || limit == 0 || !p.now.Has("process_cpu_seconds_total") {
		return nothing // a rate since the start says nothing about the present
	}
	used := p.counted.Sum("process_cpu_seconds_total") / p.over.Seconds()
	if used < busyFrom*limit {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "the control plane's CPUs are busy, which delays all stages above",
		Evidence: []string{fmt.Sprintf("process_cpu_seconds_total: %.1f CPUs of %.0f (go_sched_gomaxprocs_threads), %s", used, limit, p.subject.Seen)},
		Advice:   []string{"raise the CPU limit to what storms of changes need; find the cause with " + p.profileCommand()},
	})
}

func (p *plane) profileCommand() string {
	if p.istiod() {
		return "istiod's /debug/pprof/profile"
	}
	return "'moonsail profile control-plane'"
}

// soonEnds is the time before the end of a root certificate from which on there is a finding: workloads
// need the new one earlier.
const soonEnds = 30 * 24 * time.Hour

func (p *plane) rootCertificate() verdict {
	const metric = "citadel_server_root_cert_expiry_timestamp"
	at := p.now.Sum(metric)
	if at <= 0 {
		return nothing
	}
	left := time.Unix(int64(at), 0).Sub(p.at)
	if left > soonEnds {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "the root certificate expires soon: mutual TLS fails after that",
		Evidence: []string{fmt.Sprintf("%s: in %.0f days", metric, left.Hours()/24)},
		Advice:   []string{"rotate the root with an overlap of old and new (cacerts, or docs/upgrade.md)"},
	})
}
