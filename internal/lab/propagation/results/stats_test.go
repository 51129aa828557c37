package results

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		samples []float64
		want    float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		require.InDelta(t, tc.want, Median(tc.samples), 1e-12, "%v", tc.samples)
	}
}

func TestSpread(t *testing.T) {
	var samples []float64
	for i := 200; i > 0; i-- {
		samples = append(samples, float64(i))
	}
	s := SpreadOf(samples)
	require.Equal(t, Spread{N: 200, Mean: s.Mean, P50: 100.5, P90: 180, P99: 198, Max: 200}, s)
	require.InDelta(t, 100.5, s.Mean, 1e-9)
	require.InDelta(t, 200, samples[0], 0, "the samples stay as they were")
	require.Equal(t, Spread{}, SpreadOf(nil))
	require.Equal(t, Spread{N: 1, Mean: 3, P50: 3, P90: 3, P99: 3, Max: 3}, SpreadOf([]float64{3}))
}

func TestCurve(t *testing.T) {
	require.Equal(t, [][2]float64{{0.25, 10}, {0.5, 20}, {0.75, 30}, {1, 40}}, curve([]float64{40, 10, 30, 20}))
	require.Len(t, curve(make([]float64, 1000)), curvePoints)
	require.Nil(t, curve(nil))
}

func TestSideOf(t *testing.T) {
	s := SideOf([]Sample{
		{Last: 3, CPU: 1, Concerned: PerProxy{1, 100}, ProxyTimes: []float64{1, 3}},
		{Last: 9, CPU: 2, Concerned: PerProxy{1, 300}, ProxyTimes: []float64{2, 9}},
		{Last: 5, CPU: 9, Concerned: PerProxy{2, 200}, Unconcerned: PerProxy{0, 6}, ProxyTimes: []float64{4, 5}},
	})
	require.Equal(t, 3, s.Changes)
	require.InDelta(t, 5, s.Last.P50, 0)
	require.InDelta(t, 2, s.CPU.P50, 0)
	require.InDelta(t, 4, s.CPU.Mean, 1e-9)
	require.Equal(t, 6, s.Proxies.N)
	require.InDelta(t, 9, s.Proxies.Max, 0)
	require.Equal(t, PerProxy{1, 200}, s.Concerned)
	require.Equal(t, PerProxy{0, 0}, s.Unconcerned)
}
