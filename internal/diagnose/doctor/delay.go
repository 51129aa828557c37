package doctor

import "fmt"

// From when on delays are told, in seconds. Users see a rollout's 503s from about a second on; a timer or a queue that
// takes a third of that is worth a look.
const (
	feltFrom = 1.0
	slowFrom = 0.3
)

// convergence: how late are proxies? Where the time goes is told beside it, so that the cure is of the stage that
// takes the most.
func (p *plane) convergence() verdict {
	h, when := p.histogram("pilot_proxy_convergence_time")
	if h == nil || h.Count == 0 {
		return nothing
	}
	text := late("pilot_proxy_convergence_time", h, when, feltFrom)
	if text == "" {
		return well()
	}
	evidence, most := p.stages()
	f := Finding{
		Severity: Ill, What: "changes reach proxies late",
		Evidence: append([]string{text}, evidence...), Cure: found(stageCures[most]),
	}
	if p.istiod() {
		f.Evidence = append(f.Evidence, "istiod begins to count behind the debounce and what waits for it: changes take longer than this")
		f.Cure = append(f.Cure, "look at proxies, too: those without CPU read late (container_cpu_cfs_throttled_seconds_total)")
	} else {
		f.Cure = append(f.Cure, "moonsail changes tells where each change's time went, moonsail explain which proxies were late and why")
	}
	return well(f)
}

// stage is a part of a change's way.
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
	"push context": "let less be visible: exportTo on Services and VirtualServices, Sidecar resources, discoverySelectors in the mesh's configuration",
	"push queue":   "raise PILOT_PUSH_THROTTLE where there is CPU to spare, else more replicas of istiod",
	"generating":   "let proxies see less: Sidecar resources with egress hosts; then each push generates that alone",
	"sending":      "let proxies see less: Sidecar resources with egress hosts; look at the network and at proxies without CPU",
}

// stages tells what stages take at the mean, and which takes the most.
func (p *plane) stages() (evidence []string, most string) {
	longest := 0.0
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
		return well(Finding{
			Severity: Blind, What: "it cannot be seen how long changes wait for the debounce",
			Evidence: []string{"there is no pilot_debounce_time"},
			Cure:     []string{"newer releases of istiod have that metric; until then add PILOT_DEBOUNCE_AFTER (100ms), and under constant changes PILOT_DEBOUNCE_MAX (10s), to all that is measured"},
		})
	}
	text := late("pilot_debounce_time", h, when, slowFrom)
	if text == "" {
		return well()
	}
	return well(Finding{
		Severity: severe(h), What: "changes wait for a timer before anything is done about them",
		Evidence: []string{text}, Cure: []string{stageCures["debounce"], "PILOT_ENABLE_EDS_DEBOUNCE=false lets endpoints pass at once"},
	})
}

// severe is Ill where the p99 is what users feel.
func severe(h *Histogram) Severity {
	if v, _ := h.Quantile(worst); v > feltFrom {
		return Ill
	}
	return Risk
}

func (p *plane) pushQueue() verdict {
	h, when := p.histogram("pilot_proxy_queue_time")
	if h == nil || h.Count == 0 {
		return nothing
	}
	text := late("pilot_proxy_queue_time", h, when, slowFrom)
	if text == "" {
		return well()
	}
	return well(Finding{
		Severity: severe(h), What: "proxies wait for others to be pushed to",
		Evidence: []string{text}, Cure: []string{stageCures["push queue"], stageCures["generating"]},
	})
}

func (p *plane) pushContext() verdict {
	h, when := p.histogram("pilot_pushcontext_init_seconds")
	if h == nil || h.Count == 0 {
		return nothing
	}
	text := late("pilot_pushcontext_init_seconds", h, when, slowFrom)
	if text == "" {
		return well()
	}
	return well(Finding{
		Severity: severe(h), What: "each change has all of the mesh's configuration computed again, and the next one waits for that",
		Evidence: []string{text}, Cure: []string{stageCures["push context"]},
	})
}

func (p *plane) apiServerDelay() verdict {
	const metric = "moonsail_apiserver_delay_seconds"
	h, when := p.histogram(metric)
	switch {
	case h == nil && p.istiod():
		return well(Finding{
			Severity: Blind, What: "it cannot be seen how late the API server tells of changes",
			Evidence: []string{"istiod has no metric of it"},
			Cure:     []string{"compare the audit log's times with istiod's log at debug level; Moonsail measures it (" + metric + ")"},
		})
	case h == nil || h.Count == 0:
		return nothing
	}
	text := late(metric, h, when, feltFrom)
	if text == "" {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "the API server tells of changes late", Evidence: []string{text},
		Cure: []string{"look at the API server's and etcd's latency (apiserver_request_duration_seconds, etcd_disk_wal_fsync_duration_seconds), and at what else watches much"},
	})
}
