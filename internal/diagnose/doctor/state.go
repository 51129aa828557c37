package doctor

import (
	"fmt"
	"time"
)

// longUnacked is how many seconds a change may lack a proxy's answer before that is told.
const longUnacked = 10

func (p *plane) staleEndpoints() verdict {
	if p.istiod() {
		return well(Finding{
			Severity: Blind, What: "it cannot be seen which proxies still hold endpoints that are gone",
			Evidence: []string{"istiod keeps no account of what proxies have"},
			Cure:     []string{"point at sidecars, too (--sidecar): an endpoint that refuses all connections is told; Moonsail's control plane keeps account (moonsail stale, moonsail_stale_proxies)"},
		})
	}
	var evidence []string
	if n := p.now.Sum("moonsail_stale_proxies"); n > 0 {
		evidence = append(evidence, fmt.Sprintf("moonsail_stale_proxies %.0f", n))
	}
	if s := p.now.Sum("moonsail_oldest_unacked_seconds"); s > longUnacked {
		evidence = append(evidence, "moonsail_oldest_unacked_seconds "+seconds(s))
	}
	if len(evidence) == 0 {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "proxies do not have what is in force: some may call what is gone", Evidence: evidence,
		Cure: []string{"moonsail stale names them and why; moonsail explain OBJECT names who lacks a change"},
	})
}

// contradictions are gauges of istiod that count objects which contradict one another, or lead nowhere.
var contradictions = map[string]string{
	"pilot_conflict_outbound_listener_tcp_over_current_tcp": "services of TCP on one port, without addresses to tell them apart: calls to one go to the other; give ServiceEntries addresses",
	"pilot_conflict_inbound_listener":                       "two of a workload's services on one port with different protocols",
	"pilot_vservice_dup_domain":                             "VirtualServices with the same host: all but the oldest are ignored; merge them, or delegate",
	"pilot_duplicate_envoy_clusters":                        "clusters of one name, of which the first is taken",
	"pilot_destrule_subsets":                                "subsets of one name in several DestinationRules of a host",
	"pilot_no_ip":                                           "Pods without an address that are endpoints",
	"endpoint_no_pod":                                       "endpoints whose Pods are not known, and so have no identity",
}

func (p *plane) conflicts() verdict {
	looked := false
	var f []Finding
	for _, metric := range sortedKeys(contradictions) {
		looked = looked || p.now.Has(metric)
		if n := p.now.Sum(metric); n > 0 {
			f = append(f, Finding{
				Severity: Risk, What: contradictions[metric], Evidence: []string{fmt.Sprintf("%s %.0f", metric, n)},
				Cure: []string{"moonsail analyze names the objects, of a directory or a live cluster (istioctl analyze finds some)"},
			})
		}
	}
	if !looked {
		return nothing
	}
	return well(f...)
}

// busyFrom is the share of its CPUs from which on a control plane has none to spare for a storm.
const busyFrom = 0.7

func (p *plane) cpu() verdict {
	limit := p.now.Sum("go_sched_gomaxprocs_threads")
	if p.over <= 0 || limit == 0 || !p.now.Has("process_cpu_seconds_total") {
		return nothing // since it started says nothing of now
	}
	used := p.counted.Sum("process_cpu_seconds_total") / p.over.Seconds()
	if used < busyFrom*limit {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "the control plane's CPUs are busy: everything above waits for that",
		Evidence: []string{fmt.Sprintf("process_cpu_seconds_total: %.1f CPUs of %.0f (go_sched_gomaxprocs_threads), %s", used, limit, p.subject.Seen)},
		Cure:     []string{"a CPU limit that is no less than what storms take; a profile says on what: " + p.profileCommand()},
	})
}

func (p *plane) profileCommand() string {
	if p.istiod() {
		return "istiod's /debug/pprof/profile"
	}
	return "moonsail profile control-plane"
}

// soonEnds is before when a root certificate is to be replaced: workloads need the new one before.
const soonEnds = 30 * 24 * time.Hour

func (p *plane) rootCertificate() verdict {
	const metric = "citadel_server_root_cert_expiry_timestamp"
	at := p.now.Sum(metric)
	if at <= 0 {
		return nothing
	}
	left := time.Unix(int64(at), 0).Sub(p.at)
	if left > soonEnds {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "the root certificate ends soon: nobody in the mesh believes anybody then",
		Evidence: []string{fmt.Sprintf("%s: in %.0f days", metric, left.Hours()/24)},
		Cure:     []string{"rotate the root with an overlap of old and new (cacerts, or docs/upgrade.md)"},
	})
}
