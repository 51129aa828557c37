package routes

import (
	"math"
	"slices"
	"time"
)

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// percentile is of the nearest rank; 0 of nothing. It sorts its samples.
func percentile[T float64 | time.Duration](samples []T, share float64) T {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	i := int(math.Ceil(share*float64(len(samples)))) - 1
	return samples[min(max(i, 0), len(samples)-1)]
}

func spreadOf(samples []time.Duration) Spread {
	if len(samples) == 0 {
		return Spread{}
	}
	return Spread{
		N: len(samples), P50: millis(percentile(samples, 0.5)), P99: millis(percentile(samples, 0.99)),
		Max: millis(slices.Max(samples)),
	}
}

// per is a/n; 0 where there is nothing to divide by.
func per(a, n float64) float64 {
	if n == 0 {
		return 0
	}
	return a / n
}
