package proxyconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	pc, err := Parse("concurrency: 3\nproxy_admin_port: 15001\ndrainDuration: 5s\nproxyMetadata: {A: b}\n", "x")
	require.NoError(t, err)
	require.Equal(t, int32(3), pc.GetConcurrency().GetValue())
	require.Equal(t, int32(15001), pc.GetProxyAdminPort())
	for _, empty := range []string{"", "# nothing", "{}", "null"} {
		_, err := Parse(empty, "x")
		require.NoError(t, err, empty)
	}
	for text, want := range map[string]time.Duration{"60s": time.Minute, "1m": time.Minute, "1m0.5s": 60500 * time.Millisecond, "500ms": 500 * time.Millisecond, "-1m": -time.Minute} {
		pc, err = Parse("terminationDrainDuration: "+text, "x")
		require.NoError(t, err, text)
		require.Equal(t, want, pc.GetTerminationDrainDuration().AsDuration(), text)
	}
	pc, err = ParseAny(`{"concurrency": 2, "ofANewerVersion": 1}`, "x")
	require.NoError(t, err)
	require.Equal(t, int32(2), pc.GetConcurrency().GetValue())
}

// TestMistakesAreReportedByField checks that messages name fields, without the parser's text.
func TestMistakesAreReportedByField(t *testing.T) {
	for text, want := range map[string]string{
		"concurency: 2":                                   `concurency: unknown field; did you mean "concurrency"?`,
		"samplin: 1\nsampling: 2":                         `samplin: unknown field; known are availabilityZone, binaryPath, caCertificatesPem, concurrency, configPath, connectionSettings, controlPlaneAuthPolicy, customConfigFile, ...; sampling: unknown field; did you mean "tracing.sampling"?`,
		"tracing: {zipkin: {adddress: x}}":                `tracing.zipkin.adddress: unknown field; did you mean "address"?`,
		"concurrency: many":                               `concurrency: must be a whole number, got "many"`,
		"drainDuration: 5m\nterminationDrainDuration: 1x": `terminationDrainDuration: must be a duration such as 1.5s, got "1x"`,
		"drainDuration: 5":                                `drainDuration: must be a duration such as 1.5s, got 5`,
		"proxyMetadata: [A]":                              `proxyMetadata: must be a map of names to values, got ["A"]`,
		"proxyMetadata: {A: 1}":                           `proxyMetadata["A"]: must be a string, got 1`,
		"holdApplicationUntilProxyStarts: yes please":     `holdApplicationUntilProxyStarts: must be true or false, got "yes please"`,
		"extraStatTags: x":                                `extraStatTags: must be a list, got "x"`,
		"extraStatTags: [x, {}]":                          `extraStatTags[1]: must be a string, got {}`,
		"interceptionMode: TPROXI":                        `interceptionMode: must be one of REDIRECT, TPROXY, NONE, got "TPROXI"`,
		"proxyStatsMatcher: {inclusionRegexp: [x]}":       `proxyStatsMatcher.inclusionRegexp: unknown field; did you mean "inclusionRegexps"?`,
		"image: debug":                                    `image: must be an object with fields such as imageType, got "debug"`,
		"just text":                                       `must be an object with fields such as availabilityZone,`,
		"a: 1\nb: 1\nc: 1\nd: 1\ne: 1\nf: 1\nimages: 1":   "; and 2 more",
	} {
		_, err := Parse(text, "annotation x")
		require.ErrorContains(t, err, "annotation x: invalid ProxyConfig: ", text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "proto", text)
	}
	_, err := Parse("a: [", "annotation x")
	require.ErrorContains(t, err, "annotation x: invalid YAML: ")
	_, err = Parse("concurrency: 1\nconcurrency: 2", "annotation x")
	require.ErrorContains(t, err, "already")
}
