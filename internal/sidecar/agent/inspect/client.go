package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// clientTimeout bounds a request: Envoy may be busy with a large update.
const clientTimeout = 10 * time.Second

// Bounds of an answer, in bytes. InUse describes a few resources, and is requested automatically from any address that
// claims to be an agent; its bound is small.
const (
	maxAnswer = 256 << 20
	maxInUse  = 1 << 20
	maxCalls  = 32 << 20 // 4000 series with three histograms each have 25 MB
)

// Client asks the agent at an address, "host:port".
type Client struct {
	Address string
	Token   string // "": none
	HTTP    http.Client
}

// InUse requests the state of Envoy and of some resources.
func (c *Client) InUse(ctx context.Context, asked []Question) (*InUse, error) {
	q := url.Values{}
	for _, one := range asked {
		q.Add(strings.ToLower(one.Type), one.Name)
	}
	u := &InUse{}
	text, err := c.get(ctx, PathInUse, q, maxInUse)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, u); err != nil {
		return nil, fmt.Errorf("the agent at %s: %w", c.Address, err)
	}
	return u, nil
}

// Get requests a page.
func (c *Client) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.get(ctx, path, query, maxAnswer)
}

// Metrics requests Envoy's metrics whose names in Envoy match a regular expression. The page needs no token, and gets none.
func (c *Client) Metrics(ctx context.Context, matching string) ([]byte, error) {
	open := Client{Address: c.Address, HTTP: c.HTTP}
	return open.get(ctx, PathMetrics, url.Values{"filter": {matching}}, maxCalls)
}

// get requests a page of at most that many bytes; a longer one is an error.
func (c *Client) get(ctx context.Context, path string, query url.Values, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	u := url.URL{Scheme: "http", Host: c.Address, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("the agent at %s: the answer has more than %d bytes", c.Address, most)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refused(c.Address, resp.Status, text)
	}
	return text, nil
}

// refused returns the error in an agent's answer.
func refused(address, status string, text []byte) error {
	var why struct{ Error, Next string }
	if json.Unmarshal(text, &why) != nil || why.Error == "" {
		return fmt.Errorf("the agent at %s answers %s", address, status)
	}
	if why.Next != "" {
		why.Error += " (" + why.Next + ")"
	}
	return fmt.Errorf("the agent at %s: %s", address, why.Error)
}
