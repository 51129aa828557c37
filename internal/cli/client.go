package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
)

// debugClient asks a running control plane, at the address of its debug pages.
type debugClient struct {
	address                              string
	tokenFile, caFile, certFile, keyFile string
	http                                 http.Client
	local                                bool // no other control plane is to be asked

	mu sync.Mutex // guards others
	// others are the control planes that were not asked, as the last answer says; empty: none.
	others string
}

const (
	defaultDebugAddress = "127.0.0.1:15014"
	debugTimeout        = 10 * time.Second
	maxDebugAnswer      = 256 << 20 // bytes
)

// addFlags adds --address to cmd.
func (c *debugClient) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.address, "address", defaultDebugAddress, "`ADDRESS` of the control plane's --http-addr")
	terminal.EnvFlag(cmd, "address", "MOONSAIL_ADDRESS")
	c.addCredentials(cmd)
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			defer c.tellOthers(cmd.ErrOrStderr())
			return run(cmd, args)
		}
	}
}

// tellOthers says what an answer is about, where there is more.
func (c *debugClient) tellOthers(out io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others != "" {
		fmt.Fprintf(out, "note: this is about the proxies of the control plane at %s alone; %s more serve this mesh, and know of theirs: ask them with --address\n", c.address, c.others)
	}
}

func (c *debugClient) noteOthers(others string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others = others
}

// get reads the JSON of a debug page into answer.
func (c *debugClient) get(ctx context.Context, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	page := c.url(path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--address %q is not an address: %w", c.address, err)}
	}
	if err := c.authorize(req); err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(page, err)
	}
	defer resp.Body.Close()
	c.noteOthers(resp.Header.Get(debug.HeaderOthers))
	body := io.LimitReader(resp.Body, maxDebugAnswer)
	if resp.StatusCode != http.StatusOK {
		return refused(page, resp, body)
	}
	if err := json.NewDecoder(body).Decode(answer); err != nil {
		return &terminal.UserError{What: "the answer is not understood", Where: page, Err: err,
			Next: "check that --address is a Moonsail control plane of this version (moonsail version)"}
	}
	return nil
}

func (c *debugClient) url(path string) string {
	if strings.Contains(c.address, "://") {
		return strings.TrimSuffix(c.address, "/") + path
	}
	return "http://" + c.address + path
}

func (c *debugClient) unreachable(page string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var cause *url.Error
	if errors.As(err, &cause) {
		err = cause.Err // without the method and address, which are said below
	}
	return &terminal.UserError{What: "no control plane answers", Where: page, Err: err,
		Next: "start one with 'moonsail serve --config DIR', or say where it is with --address"}
}

// refused is an answer that is not 200.
func refused(page string, resp *http.Response, body io.Reader) error {
	var f debug.Failure
	if err := json.NewDecoder(body).Decode(&f); err != nil || f.Error == "" {
		f = debug.Failure{Error: "the control plane answered " + resp.Status, Next: "check that --address is Moonsail's --http-addr"}
	}
	return answerError{&terminal.UserError{What: f.Error, Where: page, Next: f.Next}, resp.StatusCode}
}

// answerError is an answer that is not 200.
type answerError struct {
	*terminal.UserError
	status int
}

// Unwrap is what people are told.
func (e answerError) Unwrap() error { return e.UserError }

// RefusedAsWrong reports whether the control plane could not parse the request, for example its URL.
func (e answerError) RefusedAsWrong() bool {
	return e.status == http.StatusBadRequest && e.Next == ""
}

// isAbsent tells whether what was asked about is not there.
func isAbsent(err error) bool {
	var answer answerError
	return errors.As(err, &answer) && answer.status == http.StatusNotFound
}
