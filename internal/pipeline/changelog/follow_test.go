package changelog

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/test/await"
)

func TestFollow(t *testing.T) {
	l, _ := logOf(t, 8)
	web := object(model.KindPod, "web")
	f, other := l.Follow(web.Key), l.Follow(object(model.KindPod, "other").Key)
	build(l, 2, object(model.KindPod, "x"), web)
	require.Equal(t, model.Revision(2), await.From(t, f.Began()))
	require.Empty(t, other.Began())
	f.Stop()
	other.Stop()
	require.Zero(t, l.followers.count.Load())
	require.Empty(t, l.followers.begins)
}

func TestAwait(t *testing.T) {
	for name, end := range map[string]func(l *Log){
		"the last proxy settles": func(l *Log) { l.Settled(1, 2, distribution.NACKed, at(2)) },
		"the log forgets it": func(l *Log) {
			build(l, 10, object(model.KindPod, "late"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := logOf(t, 8)
			build(l, 2, object(model.KindPod, "web"))
			ended := make(chan error, 1)
			go func() { ended <- l.Await(t.Context(), 2) }()
			l.Published(2, 2, at(0.7))
			l.Settled(1, 2, distribution.ACKed, at(1))
			require.Equal(t, Distributing, change(t, l, 2).State)
			require.Empty(t, ended, "one proxy has not settled")
			end(l)
			require.NoError(t, await.From(t, ended))
			require.NoError(t, l.Await(t.Context(), 2), "it is distributed")
			require.Empty(t, l.followers.ends)
		})
	}
	l, _ := logOf(t, 8)
	build(l, 2, object(model.KindPod, "web"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Await(ctx, 2), context.Canceled)
	require.NoError(t, l.Await(ctx, 1), "the log does not have it")
	require.Zero(t, l.followers.count.Load())
}
