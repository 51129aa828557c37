package agent

import "github.com/moonsail/moonsail/internal/sidecar/agent/istiometrics"

// countSeries keeps how many series Envoy's metrics of calls have, and says once of each side that
// there will soon be no new ones: what is counted for labels that come later is lost.
func (a *agent) countSeries(fromEnvoy []byte) {
	series := istiometrics.Series(fromEnvoy)
	for i, side := range istiometrics.Sides {
		n := series[side]
		a.metrics.series.WithLabelValues(side).Set(float64(n))
		if n < istiometrics.MaxSeries*9/10 || a.manySeries[i].Swap(true) {
			continue
		}
		a.log.Warn("Envoy keeps almost as many series of calls as it may; calls with other labels will not be counted: "+
			"remove labels with a Telemetry's tagOverrides, or look at who calls with many names",
			"reporter", side, "series", n, "bound", istiometrics.MaxSeries)
	}
}
