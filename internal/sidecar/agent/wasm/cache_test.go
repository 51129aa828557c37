package wasm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/security/safedial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// module returns the part of a module that the cache checks.
func module(text string) []byte { return append([]byte("\x00asm\x01\x00\x00\x00"), text...) }

func sha(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func newCache(t *testing.T, dir string) *Cache {
	t.Helper()
	c, err := NewCache(dir, safedial.Dialer{AllowLoopback: true}, NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	c.pause = time.Millisecond
	t.Cleanup(c.Close)
	return c
}

// shelf is a server of files by path, which a test can stop.
type shelf struct {
	*httptest.Server
	files map[string][]byte
	down  atomic.Bool
	asked atomic.Int32
}

func newShelf(t *testing.T, files map[string][]byte) *shelf {
	s := &shelf{files: files}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		b, ok := s.files[strings.TrimPrefix(r.URL.Path, "/")]
		switch {
		case s.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(b)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func archive(t *testing.T, zip bool, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.Writer = &out
	z := gzip.NewWriter(&out)
	if zip {
		w = z
	}
	a := tar.NewWriter(w)
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		require.NoError(t, a.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := a.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, a.Close())
	if zip {
		require.NoError(t, z.Close())
	}
	return out.Bytes()
}

func zipped(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func TestModulesFromServers(t *testing.T) {
	plain := module("plain")
	s := newShelf(t, map[string][]byte{
		"plain": plain, "text": []byte("<html>not found"), "short": {0}, "nothing": {}, "large": module(strings.Repeat("x", 5000)),
		"gz": zipped(t, plain), "tar": archive(t, false, "readme=hello", "a.wasm="+string(plain)), "tgz": archive(t, true, "a.wasm="+string(plain)),
		"bomb": zipped(t, module(strings.Repeat("x", 1<<20))),
	})
	c := newCache(t, t.TempDir())
	c.maxModule = 4000
	for _, path := range []string{"plain", "gz", "tgz"} {
		file, release, err := c.Get(t.Context(), Module{URL: s.URL + "/" + path, SHA256: sha(plain)})
		require.NoError(t, err, path)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, plain, got, path)
		release()
	}
	for path, why := range map[string]string{
		"text": "not a WebAssembly module", "short": "not a WebAssembly module", "nothing": "not a WebAssembly module", "large": "larger than 4000 bytes", "bomb": "larger than 4000 bytes",
		"tar":  "not a WebAssembly module", // its first file is not a module
		"none": "404",
	} {
		_, _, err := c.Get(t.Context(), Module{URL: s.URL + "/" + path})
		require.ErrorContains(t, err, why, path)
	}
	_, _, err := c.Get(t.Context(), Module{URL: s.URL + "/plain", SHA256: sha([]byte("x"))})
	require.ErrorContains(t, err, "its SHA-256 is "+sha(plain))
	left, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "failed fetches leave no file, and equal modules share one")
}

// TestDoesNotFetchFromCloudMetadata checks the addresses at which clouds serve credentials.
func TestDoesNotFetchFromCloudMetadata(t *testing.T) {
	s := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest/", http.StatusFound))
	t.Cleanup(s.Close)
	for _, url := range []string{"http://169.254.169.254/latest/", s.URL, "oci://169.254.169.254:80/plugins/a:1"} {
		_, _, err := newCache(t, t.TempDir()).Get(t.Context(), Module{URL: url})
		require.ErrorContains(t, err, "169.254.169.254: address not allowed", url)
	}
}

func TestModulesAreKept(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a"), "b": module("b")})
	dir := t.TempDir()
	c := newCache(t, dir)
	a := Module{URL: s.URL + "/a", SHA256: sha(module("a"))}
	for range 3 {
		_, _, err := c.Get(t.Context(), a)
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, s.asked.Load())
	anew := Module{URL: s.URL + "/b", Anew: true, Version: "1"}
	for _, version := range []string{"1", "1", "2"} {
		anew.Version = version
		_, release, err := c.Get(t.Context(), anew)
		require.NoError(t, err)
		release()
	}
	require.EqualValues(t, 3, s.asked.Load(), "once for each version of the object")

	s.down.Store(true)
	c = newCache(t, dir)
	file, release, err := c.Get(t.Context(), a)
	require.NoError(t, err, "a restarted agent has the modules with a known sum")
	release()
	c.Expire(time.Now())
	require.FileExists(t, file)
	require.NoError(t, os.WriteFile(file, []byte("changed"), 0o600))
	c = newCache(t, dir)
	_, _, err = c.Get(t.Context(), a)
	require.ErrorContains(t, err, "503", "a file with another sum is not used")
	require.EqualValues(t, 6, s.asked.Load(), "a temporary failure is retried three times")
}

func TestCacheHasABound(t *testing.T) {
	files := map[string][]byte{}
	for _, n := range []string{"a", "b", "c", "d"} {
		files[n] = module(strings.Repeat(n, 992))
	}
	s := newShelf(t, files)
	c := newCache(t, t.TempDir())
	c.maxCache = 2500
	get := func(n string) (string, func()) {
		file, release, err := c.Get(t.Context(), Module{URL: s.URL + "/" + n})
		require.NoError(t, err)
		return file, release
	}
	a, releaseA := get("a")
	b, releaseB := get("b")
	_, _, err := c.Get(t.Context(), Module{URL: s.URL + "/c"})
	require.ErrorContains(t, err, "do not fit beside the modules in use")
	releaseB()
	_, releaseC := get("c")
	require.NoFileExists(t, b)
	require.FileExists(t, a, "modules in use stay")
	releaseC()
	releaseA()
	c.Expire(time.Now().Add(keepUnused + time.Minute))
	left, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestKnownVersionsAreBounded changes an object often whose module has pull policy Always.
func TestKnownVersionsAreBounded(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a")})
	c := newCache(t, t.TempDir())
	get := func(version int) {
		_, release, err := c.Get(t.Context(), Module{URL: s.URL + "/a", Anew: true, Version: fmt.Sprint(version)})
		require.NoError(t, err)
		release()
	}
	get(0)
	asked := s.asked.Load()
	for i := range maxKnown {
		c.use(Module{URL: s.URL + "/a", Anew: true, Version: fmt.Sprint(1 + i)}, sha(module("a")))
	}
	require.Equal(t, maxKnown, len(c.known))
	get(maxKnown)
	require.Equal(t, asked, s.asked.Load(), "the newest version is known")
	get(0)
	require.Equal(t, asked+1, s.asked.Load(), "the oldest version is not")
}

// push puts an image into a registry, and returns its digest.
func push(t *testing.T, host, ref string, kind types.MediaType, content []byte) string {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(content, kind))
	require.NoError(t, err)
	return pushImage(t, host, ref, image)
}

func pushImage(t *testing.T, host, ref string, image v1.Image) string {
	t.Helper()
	parsed, err := name.ParseReference(host + "/" + ref)
	require.NoError(t, err)
	require.NoError(t, remote.Write(parsed, image, remote.WithContext(t.Context())))
	d, err := image.Digest()
	require.NoError(t, err)
	return d.Hex
}

func newRegistry(t *testing.T) (host string) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	t.Cleanup(remote.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestModulesFromRegistries(t *testing.T) {
	host := newRegistry(t)
	m := module("image")
	digest := push(t, host, "filter:raw", "application/vnd.module.wasm.content.layer.v1+wasm", m)
	push(t, host, "filter:docker", types.DockerLayer, archive(t, true, "etc/x=y", "./plugin.wasm="+string(m)))
	push(t, host, "filter:oci", types.OCILayer, archive(t, true, "plugin.wasm="+string(m)))
	push(t, host, "filter:none", types.OCILayer, archive(t, true, "other.wasm="+string(m)))
	push(t, host, "filter:text", types.OCILayer, archive(t, true, "plugin.wasm=text"))
	c := newCache(t, t.TempDir())
	for _, ref := range []string{"filter:raw", "filter:docker", "filter:oci", "filter@sha256:" + digest} {
		file, release, err := c.Get(t.Context(), Module{URL: "oci://" + host + "/" + ref})
		require.NoError(t, err, ref)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, m, got, ref)
		release()
	}
	_, _, err := c.Get(t.Context(), Module{URL: "oci://" + host + "/filter:raw", SHA256: digest})
	require.NoError(t, err)
	for ref, why := range map[string]string{"filter:none": "plugin.wasm", "filter:text": "plugin.wasm", "filter:gone": "MANIFEST_UNKNOWN"} {
		_, _, err := c.Get(t.Context(), Module{URL: "oci://" + host + "/" + ref})
		require.ErrorContains(t, err, why, ref)
	}
	_, _, err = c.Get(t.Context(), Module{URL: "oci://" + host + "/filter:oci", SHA256: digest})
	require.ErrorContains(t, err, "not sha256:"+digest)
}

func TestLoginsAreForTheirRegistry(t *testing.T) {
	l := Login(`{"auths":{"https://index.docker.io/v1/":{"auth":"bWU6c2VjcmV0"},"example.com":{"username":"a","password":"b"}}}`)
	auth, err := l.of("index.docker.io")
	require.NoError(t, err)
	got, err := auth.Authorization()
	require.NoError(t, err)
	require.Equal(t, "secret", got.Password)
	auth, err = l.of("other.com")
	require.NoError(t, err)
	got, err = auth.Authorization()
	require.NoError(t, err)
	require.Empty(t, got.Password)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", l, Module{Login: l}, Module{Login: l}), "secret")
	_, err = Login(`{"secret"`).of("example.com")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret\"")
}
