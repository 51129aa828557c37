package istiometrics

import "bytes"

// MaxSeries bounds the series that Envoy keeps of a side's calls; see package translate.
const MaxSeries = 2000

// Sides are the values of the label reporter.
var Sides = []string{"source", "destination"}

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
			if bytes.Contains(line, []byte(callLabel+`="`+side+"|")) {
				out[side]++
			}
		}
	}
	return out
}
