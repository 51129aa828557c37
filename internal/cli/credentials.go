package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
)

// addCredentials adds the flags of who asks.
func (c *debugClient) addCredentials(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&c.tokenFile, "token-file", "", "`FILE` whose first line is a token of the control plane's --http-token-file")
	fs.StringVar(&c.caFile, "ca-file", "", "`FILE` of certificates to trust, where --address is an https:// URL (default: the system's)")
	fs.StringVar(&c.certFile, "cert-file", "", "`FILE` with a client certificate for --address")
	fs.StringVar(&c.keyFile, "key-file", "", "`FILE` with that certificate's private key")
	terminal.EnvFlag(cmd, "token-file", "MOONSAIL_TOKEN_FILE")
	terminal.EnvFlag(cmd, "ca-file", "MOONSAIL_CA_FILE")
	terminal.EnvFlag(cmd, "cert-file", "MOONSAIL_CERT_FILE")
	terminal.EnvFlag(cmd, "key-file", "MOONSAIL_KEY_FILE")
}

// authorize puts credentials to a request. A token is never sent in plain text to another machine.
func (c *debugClient) authorize(req *http.Request) error {
	if err := c.useTLS(); err != nil {
		return terminal.UsageError{Err: err}
	}
	if c.tokenFile == "" {
		return nil
	}
	if req.URL.Scheme != "https" && !loopbackHost(req.URL.Hostname()) {
		return terminal.UsageError{Err: fmt.Errorf("--token-file: a token is not sent to %s in plain text; say https://%[1]s with --address, or forward the port to this machine", req.URL.Host)}
	}
	text, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return terminal.UsageError{Err: fmt.Errorf("--token-file: %w", err)}
	}
	token, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if token = strings.TrimSpace(token); token == "" {
		return terminal.UsageError{Err: fmt.Errorf("--token-file %s is empty", c.tokenFile)}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// useTLS reads the files of certificates, once.
func (c *debugClient) useTLS() error {
	if (c.certFile == "") != (c.keyFile == "") {
		return errors.New("--cert-file and --key-file go together")
	}
	if c.http.Transport != nil || c.caFile == "" && c.certFile == "" {
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

// loopbackHost tells whether a host is this machine.
func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
