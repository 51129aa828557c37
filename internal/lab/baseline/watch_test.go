package baseline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

func TestDroppedEventsReadAllFiles(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"a" + Extension, "b" + Extension, "other"} {
		files = append(files, filepath.Join(dir, name))
		require.NoError(t, os.WriteFile(files[len(files)-1], nil, 0o600))
	}
	w := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	told, ended := make(chan []string), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- follow(ctx, w, dir, func(paths []string) { told <- paths }) }()
	w.Errors <- fsnotify.ErrEventOverflow
	require.Equal(t, files[:2], <-told)
	w.Events <- fsnotify.Event{Name: files[0], Op: fsnotify.Write}
	require.Equal(t, files[:1], <-told, "it goes on")
	broken := errors.New("broken")
	w.Errors <- broken
	require.ErrorIs(t, <-ended, broken)
}
