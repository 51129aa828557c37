package istio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormatError(t *testing.T) {
	for _, ok := range []string{
		"", "plain", "100%%", "%HOSTNAME%", "a %REQ(:path)% b", "%REQ(X?Y):10%", "%START_TIME(%s.%3f)%",
		`%UPSTREAM_METADATA(["a", "b"])%`, "%CEL(size(string(request.size)))%", "%%%PROTOCOL%%%",
	} {
		require.Empty(t, formatError(ok), ok)
	}
	for _, bad := range []string{"%", "abc%123", "%START_TIME%%", "%REQ(x)", "% x %", "50% off"} {
		require.NotEmpty(t, formatError(bad), bad)
	}
}
