package proxyconfig_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/proxyconfig"
)

func TestOverlay(t *testing.T) {
	base, err := proxyconfig.Parse("{proxyMetadata: {A: base, B: base}, extraStatTags: [x], statusPort: 1, concurrency: 2, drainDuration: 45s}", "base")
	require.NoError(t, err)
	top, err := proxyconfig.Parse("{proxyMetadata: {B: top}, extraStatTags: [z], concurrency: 0, drainDuration: 0.5s}", "top")
	require.NoError(t, err)
	got := proxyconfig.Overlay(base, top)
	require.Equal(t, map[string]string{"A": "base", "B": "top"}, got.ProxyMetadata)
	require.Equal(t, []string{"z"}, got.ExtraStatTags, "lists are replaced")
	require.EqualValues(t, 1, got.StatusPort)
	require.EqualValues(t, 0, got.Concurrency.GetValue(), "0 is a value")
	require.Equal(t, 500*time.Millisecond, got.DrainDuration.AsDuration())
	require.Equal(t, map[string]string{"A": "base", "B": "base"}, base.ProxyMetadata, "the base has changed")
	require.EqualValues(t, 2, base.Concurrency.GetValue())
	require.EqualValues(t, 1, proxyconfig.Overlay(base, nil).StatusPort)
	require.EqualValues(t, 0, proxyconfig.Overlay(nil, top).StatusPort)
}
