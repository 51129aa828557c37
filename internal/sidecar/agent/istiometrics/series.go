package istiometrics

import (
	"bytes"

	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Sides are the values of the label reporter.
var Sides = []string{callstats.Source, callstats.Destination}

var (
	counterType = []byte(" counter\n")
	typeLine    = []byte("# TYPE ")
)

// Series counts the series of Istio's metrics of each side in Envoy's answer.
func Series(text []byte) map[string]int {
	out, counters := map[string]int{}, false
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, typeLine) {
			counters = bytes.HasPrefix(line, typePrefix) && bytes.HasSuffix(line, counterType)
			continue
		}
		if !counters {
			continue
		}
		for _, side := range Sides {
			if bytes.Contains(line, []byte(callstats.CallTag+`="`+side+callstats.Separator)) {
				out[side]++
			}
		}
	}
	return out
}
