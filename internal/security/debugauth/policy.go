// Package debugauth decides who may read HTTP pages from other machines: clients with a bearer token or a client
// certificate.
package debugauth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/base/peeraddr"
	"github.com/moonsail/moonsail/internal/model"
)

// Policy describes the credentials for clients on other machines. Clients on loopback addresses need none, except
// web pages of other sites (Local). Files are read for each use, so that they can be replaced.
type Policy struct {
	// Flags begins the flags in messages: "--http" of --http-token-file.
	Flags string

	TokenFile string // bearer tokens, one a line; "": none
	CertFile  string // with KeyFile: the server certificate; "": plain text
	KeyFile   string
	ClientCA  string   // verifies client certificates; "": none are accepted
	Open      []string // paths without protection
}

// minToken is the length of the shortest accepted token.
const minToken = 16

// Check reads all files once, and returns errors of the policy.
func (p Policy) Check() error {
	switch {
	case (p.CertFile == "") != (p.KeyFile == ""):
		return fmt.Errorf("%[1]s-cert and %[1]s-key: set both or neither", p.Flags)
	case p.ClientCA != "" && p.CertFile == "":
		return fmt.Errorf("%[1]s-client-ca requires TLS: set %[1]s-cert and %[1]s-key too", p.Flags)
	}
	if p.TokenFile != "" {
		if _, err := p.tokens(); err != nil {
			return err
		}
	}
	if p.CertFile == "" {
		return nil
	}
	_, err := p.handshake()
	return err
}

// Credentials reports whether a client on another machine can have credentials.
func (p Policy) Credentials() bool { return p.TokenFile != "" || p.ClientCA != "" }

// Reachable reports whether other machines can reach an address to listen on.
func Reachable(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && host != "localhost" && !model.IsLoopback(host) // an error: no address to listen on
}

// tokens returns the hashes of the tokens, which have equal lengths.
func (p Policy) tokens() ([][sha256.Size]byte, error) {
	text, err := os.ReadFile(p.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("%s-token-file: %w", p.Flags, err)
	}
	var out [][sha256.Size]byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if len(line) < minToken {
			return nil, fmt.Errorf("%s-token-file %s: a token has fewer than %d characters", p.Flags, p.TokenFile, minToken)
		}
		out = append(out, sha256.Sum256(line))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s-token-file %s: no token found", p.Flags, p.TokenFile)
	}
	return out, nil
}

// TLS returns nil for plain text.
func (p Policy) TLS() *tls.Config {
	if p.CertFile == "" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.handshake() }}
}

// handshake returns the configuration of one connection. A client without a certificate may have a token.
func (p Policy) handshake() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%[1]s-cert, %[1]s-key: %[2]w", p.Flags, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if p.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(p.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("%s-client-ca: %w", p.Flags, err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s-client-ca %s: no certificate found", p.Flags, p.ClientCA)
	}
	return c, nil
}

// Refuse writes the answer to a client without access: the problem and what to do.
type Refuse func(w http.ResponseWriter, status int, what, next string)

// Guard protects a handler.
func (p Policy) Guard(next http.Handler, refuse Refuse, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		foreign := Local(r)
		switch {
		case foreign == nil, slices.Contains(p.Open, r.URL.Path), p.known(r, log):
			next.ServeHTTP(w, r)
		case fromLoopback(r):
			refuse(w, http.StatusForbidden, foreign.Error(), "open http://localhost with the port of this server")
		case p.TokenFile != "":
			w.Header().Set("WWW-Authenticate", `Bearer realm="moonsail"`)
			next := fmt.Sprintf("use a token of %s-token-file with --token-file", p.Flags)
			if p.ClientCA != "" {
				next += ", or a client certificate with --cert-file and --key-file"
			}
			refuse(w, http.StatusUnauthorized, "this page needs credentials", next)
		case p.ClientCA != "": // no header can bring one
			refuse(w, http.StatusForbidden, "this page needs a client certificate",
				fmt.Sprintf("use one of %s-client-ca with --cert-file and --key-file", p.Flags))
		default:
			refuse(w, http.StatusForbidden, "only clients on this machine may read this page",
				fmt.Sprintf("use that machine, for example with kubectl port-forward, or set %s-token-file", p.Flags))
		}
	})
}

// Local returns nil if a client on this machine made a request that no other web site caused. A browser on this machine
// sends requests of any site, and a name of that site may resolve to a loopback address (DNS rebinding).
func Local(r *http.Request) error {
	if !fromLoopback(r) {
		return errors.New("only requests from this host are allowed")
	}
	if !localName(r.Host) {
		return fmt.Errorf("host %q is not allowed: only localhost and IP addresses are allowed without credentials", r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return fmt.Errorf("requests of the web site %q are not allowed", origin)
		}
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return errors.New("requests of other web sites are not allowed")
	}
	return nil
}

// localName reports whether a Host header cannot be the name of another web site. Only HTTP/1.0 has none.
func localName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil
}

func fromLoopback(r *http.Request) bool { return peeraddr.IP(r.RemoteAddr).IsLoopback() }

// known reports whether a request has accepted credentials.
func (p Policy) known(r *http.Request, log *slog.Logger) bool {
	if p.ClientCA != "" && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if p.TokenFile == "" || !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	tokens, err := p.tokens()
	if err != nil {
		log.Warn("token authentication is disabled", "err", err)
	}
	asked, found := sha256.Sum256([]byte(strings.TrimSpace(token))), 0
	for _, t := range tokens {
		found |= subtle.ConstantTimeCompare(t[:], asked[:])
	}
	return found == 1
}
