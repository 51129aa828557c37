package wasm

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// temporary is a failure that a retry may resolve.
type temporary struct{ error }

func (t temporary) Unwrap() error { return t.error }

// fetch writes a module to a file in the folder, and retries temporary failures.
func (c *Cache) fetch(ctx context.Context, m Module) (sum string, size int64, part string, err error) {
	pause := c.pause
	for attempt := 1; ; attempt++ {
		sum, size, part, err = c.attempt(ctx, m)
		if !errors.As(err, &temporary{}) || attempt == c.attempts {
			return sum, size, part, err
		}
		if err := clock.Sleep(ctx, pause); err != nil {
			return "", 0, "", err
		}
		pause *= 2
	}
}

func (c *Cache) attempt(ctx context.Context, m Module) (sum string, size int64, part string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTime)
	defer cancel()
	open := c.openURL
	if isImage(m.URL) {
		open = c.openImage
	}
	body, err := open(ctx, m)
	if err != nil {
		return "", 0, "", err
	}
	defer body.Close()
	f, err := os.CreateTemp(c.dir, partPrefix)
	if err != nil {
		return "", 0, "", fmt.Errorf("cannot be stored: %w", err)
	}
	defer f.Close()
	sum, size, err = c.copyTo(f, body)
	if err == nil && !isImage(m.URL) && m.SHA256 != "" && sum != m.SHA256 {
		err = fmt.Errorf("its SHA-256 is %s, not %s", sum, m.SHA256)
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", 0, "", err
	}
	return sum, size, f.Name(), nil
}

// copyTo writes a module and returns its sum. Anything but a module, and a module that is too large, is an error.
func (c *Cache) copyTo(f io.Writer, body io.Reader) (sum string, size int64, err error) {
	module, err := unboxed(bufio.NewReader(&io.LimitedReader{R: body, N: c.maxModule + 1}))
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(module, c.maxModule+1))
	switch {
	case size > c.maxModule:
		return "", 0, fmt.Errorf("it is larger than %d bytes", c.maxModule)
	case err != nil:
		return "", 0, temporary{fmt.Errorf("cannot be read completely: %w", err)}
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

func isImage(url string) bool { return strings.HasPrefix(url, "oci://") }

// openURL requests a module from a server.
func (c *Cache) openURL(ctx context.Context, m Module) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: c.transport}).Do(req)
	if err != nil {
		return nil, temporary{err}
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	resp.Body.Close()
	err = fmt.Errorf("the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		err = temporary{err}
	}
	return nil, err
}

// The first bytes of modules (WebAssembly 1) and of the archives that Istio accepts.
var (
	wasmMagic = []byte("\x00asm\x01\x00\x00\x00")
	gzipMagic = []byte{0x1f, 0x8b}
	tarMagic  = []byte("ustar")
)

const tarMagicAt = 257

// unboxed returns the module: the body itself, or the first file of an archive.
func unboxed(r *bufio.Reader) (io.Reader, error) {
	head, err := r.Peek(len(wasmMagic))
	switch {
	case bytes.Equal(head, wasmMagic):
		return r, nil
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		return ofArchive(bufio.NewReader(z))
	case err != nil && err != io.EOF:
		return nil, temporary{err}
	}
	return ofArchive(r)
}

func ofArchive(r *bufio.Reader) (io.Reader, error) {
	if head, _ := r.Peek(len(wasmMagic)); bytes.Equal(head, wasmMagic) {
		return r, nil
	}
	if head, _ := r.Peek(tarMagicAt + len(tarMagic)); bytes.HasSuffix(head, tarMagic) {
		return fromTar(r, func(h *tar.Header) bool { return h.Typeflag == tar.TypeReg })
	}
	return nil, errNoModule
}

var errNoModule = errors.New("not a WebAssembly module: it does not begin with \\0asm and version 1")

// fromTar returns the first file of an archive that satisfies is, if it is a module.
func fromTar(r io.Reader, is func(*tar.Header) bool) (io.Reader, error) {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return nil, errNoModule
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read its archive: %w", err)
		}
		if !is(h) {
			continue
		}
		in := bufio.NewReader(t)
		if head, _ := in.Peek(len(wasmMagic)); !bytes.Equal(head, wasmMagic) {
			return nil, errNoModule
		}
		return in, nil
	}
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
