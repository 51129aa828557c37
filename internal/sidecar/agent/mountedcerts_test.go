package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindMountedCerts(t *testing.T) {
	for value, want := range map[string]string{"true": "/etc/certs", "1": "/etc/certs", "false": "", "": ""} {
		dir, err := FindMountedCerts([]string{"A=b", "FILE_MOUNTED_CERTS=" + value})
		require.NoError(t, err)
		require.Equal(t, want, dir, value)
	}
	dir, err := FindMountedCerts(nil)
	require.NoError(t, err)
	require.Empty(t, dir)
	_, err = FindMountedCerts([]string{"FILE_MOUNTED_CERTS=yes please"})
	require.ErrorContains(t, err, "FILE_MOUNTED_CERTS")
}
