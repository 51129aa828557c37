package problem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSteps(t *testing.T) {
	at := Path("spec").Field("http").Index(3).Field("headers").Key("x-user").Field("exact")
	require.Equal(t, Path(`spec.http[3].headers["x-user"].exact`), at)
	got, ok := Steps(string(at))
	require.True(t, ok)
	require.Equal(t, []Step{{"spec", -1}, {"http", -1}, {"", 3}, {"headers", -1}, {"x-user", -1}, {"exact", -1}}, got)
	for _, bad := range []string{"a[", "a[x]", `a["x]`, "a[-1]"} {
		_, ok := Steps(bad)
		require.False(t, ok, bad)
	}
}
