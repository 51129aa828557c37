package doctor

import (
	"fmt"
	"maps"
	"slices"
)

// largePush is the mean size of a response, in bytes, above which it contains far more than a change: a
// cluster, its endpoints or a route have 1 to 3 KB.
const largePush = 100_000

func (p *plane) pushSize() verdict {
	const metric = "pilot_xds_config_size_bytes"
	byType := p.counted.HistogramBy(metric, "type")
	if len(byType) == 0 || !p.istiod() && p.over == 0 {
		return nothing // since the start, the first configurations of proxies outweigh Moonsail's changes, which are single resources
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
		return checked()
	}
	if p.over > 0 {
		evidence = append(evidence, fmt.Sprintf("%s a second to all proxies", size(total/p.over.Seconds())))
	} else {
		evidence = append(evidence, "includes the first configurations of proxies: use --over 1m for changes only")
	}
	return checked(Finding{
		Severity: Warning, What: "responses are far larger than the change: proxies get everything that they may see",
		Evidence: evidence,
		Advice: []string{
			"a Sidecar resource for each namespace, with the egress hosts that it calls (see the sidecars below, if any were examined)",
			"exportTo on Services, VirtualServices and DestinationRules that others do not need",
			"delta xDS: ISTIO_DELTA_XDS=true in proxies' metadata, the default of newer releases",
		},
	})
}

// The cache of istiod needs someReads, so that it can be judged.
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
		return checked()
	}
	return checked(Finding{
		Severity: Warning, What: "istiod generates the same configuration repeatedly",
		Evidence: []string{
			fmt.Sprintf("%s: %.0f of %.0f missed, %s", metric, reads["miss"], all, p.subject.Seen),
			fmt.Sprintf("xds_cache_evictions %.0f, xds_cache_size %.0f", p.counted.Sum("xds_cache_evictions"), p.now.Sum("xds_cache_size")),
		},
		Advice: []string{"PILOT_ENABLE_CDS_CACHE=true and PILOT_ENABLE_RDS_CACHE=true, and a larger PILOT_XDS_CACHE_SIZE if there are evictions"},
	})
}

func (p *plane) sendErrors() verdict {
	failed := []string{"pilot_xds_write_timeout", "pilot_xds_push_context_errors", "pilot_xds_send_errors"}
	if p.istiod() {
		failed = append(failed, "pilot_total_xds_internal_errors") // Moonsail counts resources that cannot be translated
	}
	var evidence []string
	for _, metric := range failed {
		if n := p.counted.Sum(metric); n > 0 {
			evidence = append(evidence, fmt.Sprintf("%s %.0f, %s", metric, n, p.subject.Seen))
		}
	}
	if len(evidence) == 0 {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "pushes fail: those proxies keep the previous configuration", Evidence: evidence,
		Advice: []string{"check for throttled sidecars, which do not read, and for networks that drop idle connections; see PILOT_XDS_SEND_TIMEOUT"},
	})
}
