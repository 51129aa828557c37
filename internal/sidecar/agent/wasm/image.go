package wasm

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Images have the forms that Istio accepts: a layer that is the module, or layers of files. The last plugin.wasm in the
// layers applies.

// maxLayers bounds the layers of an image.
const maxLayers = 32

const imageFile = "plugin.wasm"

// rawLayers are the media types of layers that are the module.
var rawLayers = []string{
	"application/vnd.module.wasm.content.layer.v1+wasm", "application/vnd.wasm.content.layer.v1+wasm", "application/wasm",
}

// openImage requests the module of an image from a registry.
func (c *Cache) openImage(ctx context.Context, m Module) (io.ReadCloser, error) {
	ref, err := name.ParseReference(strings.TrimPrefix(m.URL, "oci://"))
	if err != nil {
		return nil, err
	}
	login, err := m.Login.of(ref.Context().RegistryStr())
	if err != nil {
		return nil, err
	}
	found, err := remote.Get(ref, remote.WithContext(ctx), remote.WithAuth(login), remote.WithTransport(c.transport))
	if err != nil {
		return nil, registryError(err)
	}
	image, err := found.Image()
	if err != nil {
		return nil, registryError(err)
	}
	if err := checkDigest(m.SHA256, found.Digest, image); err != nil {
		return nil, err
	}
	return moduleOf(image)
}

// checkDigest compares want with the digest of the manifest, and of the list of manifests that contains it.
func checkDigest(want string, listed v1.Hash, image v1.Image) error {
	if want == "" || listed.Hex == want {
		return nil
	}
	own, err := image.Digest()
	if err != nil {
		return registryError(err)
	}
	if own.Hex != want {
		return fmt.Errorf("the digest of the image is sha256:%s, not sha256:%s", listed.Hex, want)
	}
	return nil
}

func moduleOf(image v1.Image) (io.ReadCloser, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, registryError(err)
	}
	if len(layers) > maxLayers {
		return nil, fmt.Errorf("the image has %d layers: the limit is %d", len(layers), maxLayers)
	}
	for _, l := range slices.Backward(layers) {
		body, err := moduleIn(l)
		if !errors.Is(err, errNoModule) {
			return body, err
		}
	}
	return nil, fmt.Errorf("the image has neither a layer that is a module nor a module %s", imageFile)
}

// moduleIn returns the module in a layer.
func moduleIn(l v1.Layer) (io.ReadCloser, error) {
	kind, err := l.MediaType()
	if err != nil {
		return nil, registryError(err)
	}
	if slices.Contains(rawLayers, string(kind)) {
		body, err := l.Compressed()
		return body, registryError(err)
	}
	body, err := l.Uncompressed()
	if err != nil {
		return nil, registryError(err)
	}
	file, err := fromTar(body, func(h *tar.Header) bool { return h.Typeflag == tar.TypeReg && path.Base(h.Name) == imageFile })
	if err != nil {
		body.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{file, body}, nil
}

// registryCodes are codes of the OCI distribution specification. Other texts in an answer are not shown: authors of
// objects must not read the answers of servers that only this machine reaches.
var registryCodes = []transport.ErrorCode{
	transport.BlobUnknownErrorCode, transport.DeniedErrorCode, transport.ManifestInvalidErrorCode, transport.ManifestUnknownErrorCode,
	transport.NameInvalidErrorCode, transport.NameUnknownErrorCode, transport.TooManyRequestsErrorCode, transport.UnauthorizedErrorCode,
	transport.UnsupportedErrorCode,
}

// registryError marks errors that a retry may resolve.
func registryError(err error) error {
	var answer *transport.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return temporary{err}
	}
	retry := answer.Temporary()
	text := http.StatusText(answer.StatusCode)
	for _, e := range answer.Errors {
		if slices.Contains(registryCodes, e.Code) {
			text += ", " + string(e.Code)
		}
	}
	err = fmt.Errorf("the registry answers: %d %s", answer.StatusCode, text)
	if retry {
		err = temporary{err}
	}
	return err
}

// of returns the credentials for a registry.
func (l Login) of(registry string) (authn.Authenticator, error) {
	if l == "" {
		return authn.Anonymous, nil
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if json.Unmarshal([]byte(l), &config) != nil { // the error would quote the credentials
		return nil, errors.New("the image's pull secret is not a Docker configuration")
	}
	for host, auth := range config.Auths {
		host = strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://")
		host, _, _ = strings.Cut(host, "/")
		if host == registry || host == "docker.io" && registry == name.DefaultRegistry {
			return authn.FromConfig(auth), nil
		}
	}
	return authn.Anonymous, nil
}
