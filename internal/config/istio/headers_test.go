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

func TestSteps(t *testing.T) {
	at := path("spec").f("http").i(3).f("headers").k("x-user").f("exact")
	require.Equal(t, path(`spec.http[3].headers["x-user"].exact`), at)
	got, ok := steps(string(at))
	require.True(t, ok)
	require.Equal(t, []step{{"spec", -1}, {"http", -1}, {"", 3}, {"headers", -1}, {"x-user", -1}, {"exact", -1}}, got)
	for _, bad := range []string{"a[", "a[x]", `a["x]`, "a[-1]"} {
		_, ok := steps(bad)
		require.False(t, ok, bad)
	}
}
