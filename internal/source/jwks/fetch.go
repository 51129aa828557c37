package jwks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/moonsail/moonsail/internal/security/jwt"
	"github.com/moonsail/moonsail/internal/security/safedial"
)

const (
	defaultTimeout = 5 * time.Second // of a fetch, including discovery
	maxTimeout     = time.Minute     // limits the timeouts of rules, because few sources are fetched at the same time
	maxBody        = 1 << 20         // bytes of an answer
	maxRedirects   = 3
)

func newClient(dialer safedial.Dialer) *http.Client {
	return &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.Dial, ForceAttemptHTTP2: true, DisableKeepAlives: true},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case len(via) > maxRedirects:
				return errors.New("too many redirects")
			case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
				return errors.New("redirects to a URL without TLS")
			}
			return nil
		},
	}
}

// fetch returns the keys of a source.
func (k *Cache) fetch(ctx context.Context, from string, discovers bool) (*jwt.Set, error) {
	if discovers {
		place, err := k.discover(ctx, from)
		if err != nil {
			return nil, err
		}
		from = place
	}
	body, err := k.get(ctx, from)
	if err != nil {
		return nil, err
	}
	set, err := jwt.Parse(body)
	switch {
	case errors.Is(err, jwt.ErrNoKeys):
		return nil, fmt.Errorf("%s: %w", from, err)
	case err != nil: // the error quotes the body
		return nil, fmt.Errorf("%s: not a JSON Web Key Set, as in {\"keys\": [...]}, or with more than %d keys", from, jwt.MaxKeys)
	}
	return set, nil
}

// discover returns the location of the keys in a document of OpenID discovery.
func (k *Cache) discover(ctx context.Context, from string) (string, error) {
	body, err := k.get(ctx, from)
	if err != nil {
		return "", err
	}
	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if json.Unmarshal(body, &document) != nil { // the error quotes the body
		return "", fmt.Errorf("%s: not a document of OpenID discovery", from)
	}
	if document.Keys == "" {
		return "", fmt.Errorf("%s: no jwks_uri", from)
	}
	if checkURL(document.Keys) != nil {
		return "", fmt.Errorf("%s: jwks_uri is not an http or https URL", from)
	}
	return document.Keys, nil
}

// checkURL returns an error for a URL that cannot be fetched.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not an http or https URL", text)
	}
	return nil
}

func (k *Cache) get(ctx context.Context, from string) ([]byte, error) {
	if err := checkURL(from); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: answers %d %s", from, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("%s: more than %d bytes", from, maxBody)
	}
	return body, err
}
