package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/istio"
)

// TestProblemsAreOfOneAnswer: whoever asks meanwhile has another one.
func TestProblemsAreOfOneAnswer(t *testing.T) {
	shared := append(make(istio.Problems, 0, 2), istio.Problem{Message: "source"})
	first := joined(shared, istio.Problems{{Message: "first"}})
	second := joined(shared, istio.Problems{{Message: "second"}})
	require.Equal(t, "first", first[1].Message)
	require.Equal(t, "second", second[1].Message)
}
