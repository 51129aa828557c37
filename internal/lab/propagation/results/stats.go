package results

import (
	"math"
	"slices"
	"time"
)

// Spread summarizes a distribution. The caller chooses the unit.
type Spread struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// SpreadOf summarizes samples in any order. Percentiles use the nearest rank; the median of an even number of
// samples is the mean of the middle two.
func SpreadOf(samples []float64) Spread {
	if len(samples) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(samples))
	out := Spread{N: len(s), P50: Median(s), P90: rank(s, 0.9), P99: rank(s, 0.99), Max: s[len(s)-1]}
	for _, v := range s {
		out.Mean += v / float64(len(s))
	}
	return out
}

// rank returns the smallest value that a share of the sorted values does not exceed.
func rank(sorted []float64, share float64) float64 {
	i := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Median returns the median of samples in any order, or 0 if there are none.
func Median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}

// Ratio returns a/b, or 0 if b is 0.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Millis converts a duration to milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// AllMillis converts durations to milliseconds.
func AllMillis(list []time.Duration) []float64 {
	out := make([]float64, len(list))
	for i, d := range list {
		out[i] = Millis(d)
	}
	return out
}

// curve reduces a distribution to at most curvePoints points (share, value) for plots.
func curve(samples []float64) [][2]float64 {
	s := slices.Sorted(slices.Values(samples))
	if len(s) == 0 {
		return nil
	}
	n := min(curvePoints, len(s))
	out := make([][2]float64, 0, n)
	for i := 1; i <= n; i++ {
		share := float64(i) / float64(n)
		out = append(out, [2]float64{share, rank(s, share)})
	}
	return out
}
