package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/istioapi"
)

// TestProblemsAreOfOneAnswer: whoever asks meanwhile has another one.
func TestProblemsAreOfOneAnswer(t *testing.T) {
	shared := append(make(istioapi.Problems, 0, 2), istioapi.Problem{Message: "source"})
	first := joined(shared, istioapi.Problems{{Message: "first"}})
	second := joined(shared, istioapi.Problems{{Message: "second"}})
	require.Equal(t, "first", first[1].Message)
	require.Equal(t, "second", second[1].Message)
}
