package bootstrap_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
)

// TestHistogramBuckets checks that prefixes of Istio's names match the names of the same histograms here.
func TestHistogramBuckets(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation string
		want       []string
	}{
		"Istio's example": {`{"istiocustom": [1, 5, 10, 50, 100]}`, []string{"istio."}},
		"one metric":      {`{"istiocustom.istio_request_duration": [1]}`, []string{"istio.request_duration"}},
		"several":         {`{"istio": [1], "istiocustom.": [2], "cluster": [3]}`, []string{"istio.", "cluster", "istio"}},
		"others":          {`{"": [1], "istiod": [2], "istiocustomer": [3]}`, []string{"istiocustomer", "istiod", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bootstrap.HistogramBuckets(tc.annotation)
			require.NoError(t, err)
			var prefixes []string
			for _, b := range got {
				prefixes = append(prefixes, b.GetMatch().GetPrefix())
			}
			require.Equal(t, tc.want, prefixes)
		})
	}
}
