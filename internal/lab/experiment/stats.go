package experiment

import (
	"math"
	"slices"
)

// Confidence is the least that an interval must have for a verdict.
const Confidence = 0.9

// SummaryOf sums samples up, in any order.
func SummaryOf(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(samples))
	return Summary{N: len(s), Median: quantile(s, 0.5), Q1: quantile(s, 0.25), Q3: quantile(s, 0.75), Min: s[0], Max: s[len(s)-1]}
}

// Median of samples in any order; 0 of none.
func Median(samples []float64) float64 {
	return quantile(slices.Sorted(slices.Values(samples)), 0.5)
}

// quantile interpolates between the two nearest of sorted samples (the usual "type 7").
func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := share * float64(len(sorted)-1)
	below := int(math.Floor(at))
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// Interval is the narrowest pair of order statistics, as far from the lowest as from the
// highest, that holds the true median with a confidence of at least Confidence; the lowest and
// the highest where none does.
func Interval(samples []float64) (low, high, confidence float64) {
	n := len(samples)
	if n == 0 {
		return 0, 0, 0
	}
	s := slices.Sorted(slices.Values(samples))
	cut, outside := 0, tail(n, 0)
	for k := 1; 2*k < n && 1-2*tail(n, k) >= Confidence; k++ {
		cut, outside = k, tail(n, k)
	}
	return s[cut], s[n-1-cut], 1 - 2*outside
}

// tail is the probability that at most k of n samples are below the true median.
func tail(n, k int) (p float64) {
	ways := 1.0 // n over i
	for i := range k + 1 {
		p += ways
		ways *= float64(n-i) / float64(i+1)
	}
	return p / math.Pow(2, float64(n))
}
