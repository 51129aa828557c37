package doctor

import (
	"fmt"
	"maps"
	"slices"
)

// largePush is from how many bytes at the mean a response is far more than what changed: a cluster, its endpoints or
// a route are 1 to 3 KB.
const largePush = 100_000

func (p *plane) pushSize() verdict {
	const metric = "pilot_xds_config_size_bytes"
	byType := p.counted.HistogramBy(metric, "type")
	if len(byType) == 0 || !p.istiod() && p.over == 0 {
		return nothing // since it started, what proxies began with outweighs Moonsail's changes, which are single resources
	}
	var evidence []string
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(byType)) {
		h := byType[name]
		total += h.Sum
		if h.Mean() > largePush {
			evidence = append(evidence, fmt.Sprintf("%s{type=%q}: %s at the mean of %.0f responses, %s", metric, name, size(h.Mean()), h.Count, p.subject.Seen))
		}
	}
	if len(evidence) == 0 {
		return well()
	}
	if p.over > 0 {
		evidence = append(evidence, fmt.Sprintf("%s a second to all proxies", size(total/p.over.Seconds())))
	} else {
		evidence = append(evidence, "first configurations of proxies are among them: --over 1m looks at changes alone")
	}
	return well(Finding{
		Severity: Risk, What: "a response is far more than what changed: proxies are sent all that they may see",
		Evidence: evidence,
		Cure: []string{
			"a Sidecar resource for each namespace, with the egress hosts that it calls (the sidecars below tell which they call, where any were asked)",
			"exportTo on Services, VirtualServices and DestinationRules that others do not need",
			"delta xDS: ISTIO_DELTA_XDS=true in proxies' metadata, the default of newer releases",
		},
	})
}

// Reads of istiod's cache are judged from some number on.
const (
	someReads = 1000
	manyMiss  = 0.5
)

func (p *plane) cache() verdict {
	const metric = "xds_cache_reads"
	reads := p.counted.By(metric, "type")
	all := reads["hit"] + reads["miss"]
	if !p.now.Has(metric) || all < someReads {
		return nothing
	}
	if reads["miss"] < manyMiss*all {
		return well()
	}
	return well(Finding{
		Severity: Risk, What: "istiod generates again what it generated before",
		Evidence: []string{
			fmt.Sprintf("%s: %.0f of %.0f missed, %s", metric, reads["miss"], all, p.subject.Seen),
			fmt.Sprintf("xds_cache_evictions %.0f, xds_cache_size %.0f", p.counted.Sum("xds_cache_evictions"), p.now.Sum("xds_cache_size")),
		},
		Cure: []string{"PILOT_ENABLE_CDS_CACHE=true and PILOT_ENABLE_RDS_CACHE=true, and a larger PILOT_XDS_CACHE_SIZE where there are evictions"},
	})
}

func (p *plane) rejects() verdict {
	const metric = "pilot_total_xds_rejects"
	var evidence []string
	if p.now.Has(metric) {
		evidence = listed(metric, "type", p.counted.By(metric, "type"), 0)
	}
	if len(evidence) == 0 {
		return well()
	}
	cure := "find which, and why: istiod's log says \"ADS:… REJECT\" with the proxy and Envoy's words; istioctl proxy-status lists proxies with errors"
	if !p.istiod() {
		cure = "find which, and why: moonsail proxies, moonsail explain; the objects that are the cause have it as a condition"
	}
	return well(Finding{
		Severity: Ill, What: "Envoys refuse configuration, and stay on what they had", Evidence: append(evidence, p.subject.Seen), Cure: []string{cure},
	})
}

func (p *plane) sendErrors() verdict {
	var evidence []string
	for _, metric := range []string{"pilot_xds_write_timeout", "pilot_total_xds_internal_errors", "pilot_xds_push_context_errors", "pilot_xds_send_errors"} {
		if n := p.counted.Sum(metric); n > 0 {
			evidence = append(evidence, fmt.Sprintf("%s %.0f, %s", metric, n, p.subject.Seen))
		}
	}
	if len(evidence) == 0 {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "pushes fail: those proxies go on with what they had", Evidence: evidence,
		Cure: []string{"look for proxies without CPU (throttled sidecars do not read), and for networks that drop idle connections; PILOT_XDS_SEND_TIMEOUT"},
	})
}
