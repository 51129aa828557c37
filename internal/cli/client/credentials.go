package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// addCredentials adds the flags that authenticate the user to the control plane.
func (c *ControlPlane) addCredentials(cmd *cobra.Command) {
	for _, f := range []struct {
		value            *string
		name, env, usage string
	}{
		{&c.tokenFile, "token-file", "MOONSAIL_TOKEN_FILE", "`FILE` whose first line is a token from the control plane's --http-token-file"},
		{&c.caFile, "ca-file", "MOONSAIL_CA_FILE", "`FILE` with CA certificates to trust for an https --address (default: the system's)"},
		{&c.certFile, "cert-file", "MOONSAIL_CERT_FILE", "`FILE` with a client certificate"},
		{&c.keyFile, "key-file", "MOONSAIL_KEY_FILE", "`FILE` with the private key of --cert-file"},
	} {
		cmd.Flags().StringVar(f.value, f.name, "", f.usage)
		terminal.EnvFlag(cmd, f.name, f.env)
	}
}

// authorize adds credentials to a request. A token is never sent in plain text to another machine.
func (c *ControlPlane) authorize(req *http.Request) error {
	c.tlsOnce.Do(func() { c.tlsErr = c.useTLS() })
	if c.tlsErr != nil {
		return terminal.UsageError{Err: c.tlsErr}
	}
	if c.tokenFile == "" {
		return nil
	}
	if req.URL.Scheme != "https" && !isLoopback(req.URL.Hostname()) {
		return terminal.UsageError{Err: fmt.Errorf("--token-file: the token is not sent to %s in plain text: use --address https://%[1]s, or forward the port to this machine", req.URL.Host)}
	}
	text, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--token-file: %w", err)}
	}
	token, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if token = strings.TrimSpace(token); token == "" {
		return terminal.UsageError{Err: fmt.Errorf("--token-file %s: the file is empty", c.tokenFile)}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// useTLS reads the certificate files. It runs once, before the first request: replicas are asked at the same time.
func (c *ControlPlane) useTLS() error {
	if (c.certFile == "") != (c.keyFile == "") {
		return errors.New("--cert-file and --key-file: give both or none")
	}
	if c.caFile == "" && c.certFile == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.caFile != "" {
		pem, err := os.ReadFile(c.caFile)
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--ca-file %s: no certificate found", c.caFile)
		}
	}
	if c.certFile != "" {
		cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
		if err != nil {
			return fmt.Errorf("--cert-file, --key-file: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	c.http.Transport = &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return nil
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	return host == "localhost" || model.IsLoopback(host)
}
