package ca

import (
	"crypto/ecdsa"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// TestDirIsRaced opens an empty directory with several control planes. They get one root, which only its owner can
// read.
func TestDirIsRaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "ca")
	const many = 8
	roots := make(chan string, many)
	for range many {
		go func() {
			a, err := Open(t.Context(), Options{Store: Dir{Path: dir}, Log: quiet()})
			if err != nil {
				roots <- fmt.Sprint(err)
				return
			}
			r := rootsOf(a)
			roots <- r
		}()
	}
	first := await.From(t, roots)
	require.Contains(t, first, "BEGIN CERTIFICATE")
	for range many - 1 {
		require.Equal(t, first, await.From(t, roots))
	}
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for _, name := range []string{CertFile, KeyFile, RootFile, OwnFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	text, err := os.ReadFile(filepath.Join(dir, KeyFile))
	require.NoError(t, err)
	key, err := parseKey(text)
	require.NoError(t, err)
	require.IsType(t, &ecdsa.PrivateKey{}, key)
	left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestDir checks that an operator's files are used, and incomplete ones are not overwritten.
func TestDir(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, b []byte) { require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600)) }
	_, err := Open(t.Context(), Options{Store: Dir{Path: dir, ReadOnly: true}, Log: quiet()})
	require.ErrorContains(t, err, "no ca-cert.pem and ca-key.pem in the directory")
	files, root := plugIn(t, nil)
	put(RootFile, files[RootFile])
	_, err = Open(t.Context(), Options{Store: Dir{Path: dir}, Log: quiet()})
	require.ErrorContains(t, err, "ca-cert.pem: missing")
	for name, b := range files {
		put(name, b)
	}
	a := open(t, Options{Store: Dir{Path: dir}})
	require.False(t, a.State().Own)
	require.Equal(t, "directory "+dir, a.State().Where)
	roots := rootsOf(a)
	require.Equal(t, string(root.pem()), roots)
}

// TestDirAfterACrash checks that incomplete generated files without a key are replaced.
func TestDirAfterACrash(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Store: Dir{Path: dir}})
	require.NoError(t, os.Remove(filepath.Join(dir, KeyFile)))
	a := open(t, Options{Store: Dir{Path: dir}})
	got, err := a.Issue(request(t, ecKey(t)), web, 0)
	require.NoError(t, err)
	b := open(t, Options{Store: Dir{Path: dir}})
	roots := rootsOf(b)
	_, err = verify(t, got.Chain, roots, time.Now())
	require.NoError(t, err)
}

// TestDirRenews renews a root in files.
func TestDirRenews(t *testing.T) {
	c := &setClock{at: time.Now()}
	a := open(t, Options{Store: Dir{Path: t.TempDir()}, RootTTL: 10 * time.Hour, Now: c.now})
	c.add(9 * time.Hour)
	require.Empty(t, a.lookNow(t))
	require.Empty(t, a.lookNow(t))
	require.Len(t, a.State().Roots, 2)
	require.True(t, a.State().Own)
}
