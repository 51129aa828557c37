package doctor

import "fmt"

// Thresholds for delays, in seconds. Users notice errors of a rollout from about a second on. A timer or a
// queue that takes a third of that is worth a finding.
const (
	feltFrom = 1.0
	slowFrom = 0.3
)

// convergence finds proxies that get changes late. The finding also has the time of each stage, and advice
// for the stage that takes the most.
func (p *plane) convergence() verdict {
	h, when := p.histogram("pilot_proxy_convergence_time")
	if h == nil || h.Count == 0 {
		return nothing
	}
	text := late("pilot_proxy_convergence_time", h, when, feltFrom)
	if text == "" {
		return checked()
	}
	evidence, most := p.stages()
	f := Finding{
		Severity: Critical, What: "changes reach proxies late",
		Evidence: append([]string{text}, evidence...), Advice: found(stageCures[most]),
	}
	if p.istiod() {
		f.Evidence = append(f.Evidence, "istiod counts from the end of the debounce on: changes take longer than this")
		f.Advice = append(f.Advice, "check proxies for missing CPU, which makes them read late (container_cpu_cfs_throttled_seconds_total)")
	} else {
		f.Advice = append(f.Advice, "see 'moonsail changes' for the stages of each change, and 'moonsail explain' for proxies that were late")
	}
	return checked(f)
}

// stage is a stage of a change's way.
type stage struct{ metric, what string }

var stages = []stage{
	{"pilot_debounce_time", "debounce"},
	{"pilot_pushcontext_init_seconds", "push context"},
	{"pilot_proxy_queue_time", "push queue"},
	{"pilot_xds_push_time", "generating"},
	{"pilot_xds_send_time", "sending"},
}

var stageCures = map[string]string{
	"debounce":     "shorten the debounce: PILOT_DEBOUNCE_AFTER and PILOT_DEBOUNCE_MAX of istiod (Moonsail has none unless it is set)",
	"push context": "limit what is visible: exportTo on Services and VirtualServices, Sidecar resources, discoverySelectors in the mesh's configuration",
	"push queue":   "raise PILOT_PUSH_THROTTLE if istiod has unused CPU, or else run more replicas",
	"generating":   "limit what proxies see: Sidecar resources with egress hosts",
	"sending":      "limit what proxies see: Sidecar resources with egress hosts; check the network, and proxies for missing CPU",
}

// stages returns the mean time of each stage, and the stage that takes the most, if it is slow.
func (p *plane) stages() (evidence []string, most string) {
	longest := slowFrom
	for _, s := range stages {
		h, when := p.histogram(s.metric)
		if h == nil || h.Count == 0 {
			continue
		}
		evidence = append(evidence, fmt.Sprintf("%s: %s at the mean of %.0f (%s), %s", s.what, seconds(h.Mean()), h.Count, s.metric, when))
		if h.Mean() > longest {
			longest, most = h.Mean(), s.what
		}
	}
	return evidence, most
}

func (p *plane) debounce() verdict {
	h, when := p.histogram("pilot_debounce_time")
	if h == nil {
		if !p.istiod() {
			return nothing
		}
		return checked(Finding{
			Severity: Unknown, What: "unknown how long changes wait for the debounce",
			Evidence: []string{"metric pilot_debounce_time: missing"},
			Advice:   []string{"upgrade istiod for the metric; until then add PILOT_DEBOUNCE_AFTER (100ms), or under constant changes PILOT_DEBOUNCE_MAX (10s), to all measurements"},
		})
	}
	text := late("pilot_debounce_time", h, when, slowFrom)
	if text == "" {
		return checked()
	}
	return checked(Finding{
		Severity: severe(h), What: "changes wait for a timer before istiod handles them",
		Evidence: []string{text}, Advice: []string{stageCures["debounce"], "PILOT_ENABLE_EDS_DEBOUNCE=false exempts endpoints from the debounce"},
	})
}

// severe returns Critical if users notice the p99.
func severe(h *Histogram) Severity {
	if v, _ := h.Quantile(worst); v > feltFrom {
		return Critical
	}
	return Warning
}

func (p *plane) pushQueue() verdict {
	h, when := p.histogram("pilot_proxy_queue_time")
	if h == nil || h.Count == 0 {
		return nothing
	}
	text := late("pilot_proxy_queue_time", h, when, slowFrom)
	if text == "" {
		return checked()
	}
	return checked(Finding{
		Severity: severe(h), What: "proxies wait until other proxies are pushed to",
		Evidence: []string{text}, Advice: []string{stageCures["push queue"], stageCures["generating"]},
	})
}

func (p *plane) pushContext() verdict {
	h, when := p.histogram("pilot_pushcontext_init_seconds")
	if h == nil || h.Count == 0 {
		return nothing
	}
	text := late("pilot_pushcontext_init_seconds", h, when, slowFrom)
	if text == "" {
		return checked()
	}
	return checked(Finding{
		Severity: severe(h), What: "each change recomputes the configuration of the whole mesh, and the next change waits for that",
		Evidence: []string{text}, Advice: []string{stageCures["push context"]},
	})
}

func (p *plane) apiServerDelay() verdict {
	const metric = "moonsail_apiserver_delay_seconds"
	h, when := p.histogram(metric)
	switch {
	case h == nil && p.istiod():
		return checked(Finding{
			Severity: Unknown, What: "unknown how late the API server reports changes",
			Evidence: []string{"istiod has no metric for it"},
			Advice:   []string{"compare the times of the audit log with istiod's log at debug level; Moonsail measures it (" + metric + ")"},
		})
	case h == nil || h.Count == 0:
		return nothing
	}
	text := late(metric, h, when, feltFrom)
	if text == "" {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "the API server reports changes late", Evidence: []string{text},
		Advice: []string{"check the latency of the API server and etcd (apiserver_request_duration_seconds, etcd_disk_wal_fsync_duration_seconds), and other clients with many watches"},
	})
}
