package config

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKindsThatAreReadHaveTypes checks that each kind has a type.
func TestKindsThatAreReadHaveTypes(t *testing.T) {
	types := map[reflect.Type]bool{}
	for _, k := range readKinds {
		require.Contains(t, typedKinds, k.model())
		types[reflect.TypeOf(newTyped(k.model()))] = true
	}
	require.Len(t, types, len(readKinds))
	require.Len(t, typedRows, len(typedKinds))
}
