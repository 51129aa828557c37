package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
)

// bucketsAnnotation holds a JSON object: prefixes of histograms' names, and the upper bounds
// of their buckets.
const bucketsAnnotation = "sidecar.istio.io/statsHistogramBuckets"

// histogramBuckets are those of the annotation; longer prefixes come first, as Envoy takes the
// first that fits.
func (s *settings) histogramBuckets() ([]*metricsv3.HistogramBucketSettings, error) {
	text := s.Workload.Annotations[bucketsAnnotation]
	if text == "" {
		return nil, nil
	}
	var said map[string][]float64
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s: not a JSON object of lists of numbers: %w", bucketsAnnotation, s.Workload.Name, err)
	}
	var out []*metricsv3.HistogramBucketSettings
	for _, prefix := range slices.SortedFunc(maps.Keys(said), longerFirst) {
		if err := checkBuckets(said[prefix]); err != nil {
			return nil, fmt.Errorf("annotation %s of pod %s, prefix %q: %w", bucketsAnnotation, s.Workload.Name, prefix, err)
		}
		out = append(out, &metricsv3.HistogramBucketSettings{Match: prefixMatcher(prefix), Buckets: said[prefix]})
	}
	return out, nil
}

func longerFirst(a, b string) int {
	if len(a) != len(b) {
		return len(b) - len(a)
	}
	if a < b {
		return -1
	}
	return 1
}

// checkBuckets: as Envoy wants them.
func checkBuckets(bounds []float64) error {
	if len(bounds) == 0 {
		return fmt.Errorf("a histogram needs a bucket")
	}
	for i, b := range bounds {
		if b <= 0 || i > 0 && b <= bounds[i-1] {
			return fmt.Errorf("bounds of buckets are above 0 and grow, %v do not", bounds)
		}
	}
	return nil
}
