package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// TestProblemListsAreIndependent checks that concurrent readers get lists of their own.
func TestProblemListsAreIndependent(t *testing.T) {
	shared := append(make(problem.List, 0, 2), problem.Problem{Message: "source"})
	first := joined(shared, problem.List{{Message: "first"}})
	second := joined(shared, problem.List{{Message: "second"}})
	require.Equal(t, "first", first[1].Message)
	require.Equal(t, "second", second[1].Message)
}
