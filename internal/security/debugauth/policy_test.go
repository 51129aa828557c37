package debugauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pages serves all pages.
var pages = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func refuse(w http.ResponseWriter, status int, what, next string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, what+": "+next)
}

var scrapeable = []string{"/metrics", "/ready", "/version"}

const token, second = "0123456789abcdef0123", "fedcba9876543210fedc"

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestGuard checks that loopback clients may read everything, and others what their credentials allow.
func TestGuard(t *testing.T) {
	with := Policy{Flags: "--http", TokenFile: writeFile(t, "tokens", "# of operators\n"+token+"\n\n"+second+"\n")}
	scraped := with
	scraped.Open = scrapeable
	const here, v6, mapped, far = "127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9", "10.1.2.3:9"
	for name, c := range map[string]struct {
		access          Policy
		from, path, who string
		status          int
	}{
		"loopback":                     {Policy{}, here, "/debug/store", "", 200},
		"loopback of IPv6":             {with, v6, "/debug/store", "", 200},
		"loopback as IPv6":             {with, mapped, "/debug/store", "", 200},
		"others, nothing given":        {Policy{}, far, "/debug/store", "", 403},
		"metrics, nothing given":       {Policy{}, far, "/metrics", "", 403},
		"a token where none is known":  {Policy{}, far, "/debug/store", "Bearer " + token, 403},
		"no token":                     {with, far, "/debug/store", "", 401},
		"a token":                      {with, far, "/debug/store", "Bearer " + token, 200},
		"the second token":             {with, far, "/debug/store", "bearer " + second, 200},
		"a wrong token":                {with, far, "/debug/store", "Bearer " + token + "4", 401},
		"part of a token":              {with, far, "/debug/store", "Bearer " + token[:19], 401},
		"both tokens":                  {with, far, "/debug/store", "Bearer " + token + "\n" + second, 401},
		"a comment":                    {with, far, "/debug/store", "Bearer # of operators", 401},
		"an empty token":               {with, far, "/debug/store", "Bearer ", 401},
		"another scheme":               {with, far, "/debug/store", "Basic " + token, 401},
		"profiles":                     {with, far, "/debug/pprof/goroutine", "", 401},
		"command line":                 {with, far, "/debug/pprof/cmdline", "", 401},
		"index":                        {with, far, "/debug", "", 401},
		"root":                         {with, far, "/", "", 401},
		"what is not there":            {with, far, "/nowhere", "", 401},
		"metrics":                      {with, far, "/metrics", "", 401},
		"metrics, scrapeable":          {scraped, far, "/metrics", "", 200},
		"readiness, scrapeable":        {scraped, far, "/ready", "", 200},
		"version, scrapeable":          {scraped, far, "/version", "", 200},
		"pages beside scrapeable ones": {scraped, far, "/debug/changes", "", 401},
		"a path that looks like one":   {scraped, far, "/debug/../metrics/../debug/store", "", 401},
		"double slash":                 {scraped, far, "//debug/store", "", 401},
		"only scrapeable, metrics":     {Policy{Open: scrapeable}, far, "/metrics", "", 200},
		"only scrapeable, pages":       {Policy{Open: scrapeable}, far, "/debug/changes", "", 403},
		"only certificates":            {Policy{Flags: "--http", ClientCA: "ca.crt"}, far, "/debug/store", "Bearer " + token, 403},
		"no address":                   {with, "", "/debug/store", "", 401},
		"a socket":                     {with, "@", "/debug/store", "", 401},
	} {
		t.Run(name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			r := httptest.NewRequest(http.MethodGet, c.path, nil)
			r.RemoteAddr, r.Host = c.from, "localhost:15014"
			if c.who != "" {
				r.Header.Set("Authorization", c.who)
			}
			w := httptest.NewRecorder()
			c.access.Guard(pages, refuse, log).ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code, w.Body.String())
			if c.status == 401 {
				require.Contains(t, w.Header().Get("WWW-Authenticate"), "Bearer")
				require.Contains(t, w.Body.String(), "--token-file")
				require.NotContains(t, w.Body.String(), "certificate", "no client certificate is accepted")
			}
			if c.access.ClientCA != "" {
				require.Contains(t, w.Body.String(), "--cert-file")
				require.NotContains(t, w.Body.String(), "token", "no token is accepted")
			}
		})
	}
}

// TestOtherWebSites checks that a browser on this machine reads nothing for other web sites.
func TestOtherWebSites(t *testing.T) {
	with := Policy{Flags: "--http", TokenFile: writeFile(t, "tokens", token), Open: scrapeable}
	for name, c := range map[string]struct {
		path, host, header, value string
		status                    int
	}{
		"localhost":              {"/debug/store", "localhost:15014", "", "", 200},
		"localhost, upper case":  {"/debug/store", "LocalHost.:15014", "", "", 200},
		"a name of localhost":    {"/debug/store", "mesh.localhost:15014", "", "", 200},
		"an IPv4 address":        {"/debug/store", "127.0.0.1:15014", "", "", 200},
		"an IPv6 address":        {"/debug/store", "[::1]:15014", "", "", 200},
		"an address, no port":    {"/debug/store", "[::1]", "", "", 200},
		"no host":                {"/debug/store", "", "", "", 200},
		"same origin":            {"/debug/store", "localhost:1", "Origin", "http://localhost:1", 200},
		"a rebound name":         {"/debug/store", "evil.example:15014", "", "", 403},
		"a rebound name, 2":      {"/debug/store", "localhost.evil.example", "", "", 403},
		"a rebound name, 3":      {"/debug/store", "evillocalhost", "", "", 403},
		"a rebound name, open":   {"/metrics", "evil.example:15014", "", "", 200},
		"with a token":           {"/debug/store", "istiod.istio-system:15014", "Authorization", "Bearer " + token, 200},
		"another origin":         {"/debug/store", "localhost:1", "Origin", "https://evil.example", 403},
		"another port":           {"/debug/store", "localhost:1", "Origin", "http://localhost:2", 403},
		"a sandbox":              {"/debug/store", "localhost:1", "Origin", "null", 403},
		"an image of a web site": {"/debug/store", "127.0.0.1:1", "Sec-Fetch-Site", "cross-site", 403},
		"the page itself":        {"/debug/store", "127.0.0.1:1", "Sec-Fetch-Site", "same-origin", 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, c.path, nil)
			r.RemoteAddr, r.Host = "127.0.0.1:9", c.host
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			w := httptest.NewRecorder()
			with.Guard(pages, refuse, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code, w.Body.String())
		})
	}
}

// TestTokensAreReadAgain checks that a removed token is refused.
func TestTokensAreReadAgain(t *testing.T) {
	a := Policy{TokenFile: writeFile(t, "tokens", token)}
	ask := func(who string) int {
		r := httptest.NewRequest(http.MethodGet, "/ready", nil)
		r.RemoteAddr = "10.1.2.3:9"
		r.Header.Set("Authorization", "Bearer "+who)
		w := httptest.NewRecorder()
		log := slog.New(slog.DiscardHandler)
		a.Guard(pages, refuse, log).ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, 200, ask(token))
	require.NoError(t, os.WriteFile(a.TokenFile, []byte(second), 0o600))
	require.Equal(t, 401, ask(token))
	require.Equal(t, 200, ask(second))
	require.NoError(t, os.Remove(a.TokenFile))
	require.Equal(t, 401, ask(second))
}

func TestAccessThatCannotWork(t *testing.T) {
	short, empty, text := writeFile(t, "s", "abc"), writeFile(t, "e", "# no user\n"), writeFile(t, "t", "no certificate")
	cert, key := certificate(t, nil, nil)
	for want, a := range map[string]Policy{
		"fewer than 16 characters":             {TokenFile: short},
		"no token found":                       {TokenFile: empty},
		"no such file":                         {TokenFile: empty + "x"},
		"--http-cert and --http-key":           {CertFile: cert},
		"--http-client-ca requires TLS":        {ClientCA: cert},
		"--http-cert, --http-key: tls":         {CertFile: text, KeyFile: key},
		"no certificate found":                 {CertFile: cert, KeyFile: key, ClientCA: text},
		"--http-client-ca: open " + text + "x": {CertFile: cert, KeyFile: key, ClientCA: text + "x"},
	} {
		a.Flags = "--http"
		require.ErrorContains(t, a.Check(), want)
	}
	require.NoError(t, Policy{CertFile: cert, KeyFile: key, ClientCA: cert}.Check())
}

func TestWhatOthersReach(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:1": false, "127.8.8.8:1": false, "[::1]:1": false, "localhost:1": false, "nowhere": false,
		":1": true, "0.0.0.0:1": true, "[::]:1": true, "10.0.0.1:1": true, "mesh.example:1": true, "[::ffff:127.0.0.1]:1": false} {
		require.Equal(t, want, Reachable(addr), addr)
	}
}

// TestClientCertificates checks that TLS accepts certificates of the CA, and refuses others.
func TestClientCertificates(t *testing.T) {
	serverCert, serverKey := certificate(t, nil, nil)
	caCert, caKey := certificate(t, nil, nil)
	ca, err := tls.LoadX509KeyPair(caCert, caKey)
	require.NoError(t, err)
	access := Policy{CertFile: serverCert, KeyFile: serverKey, ClientCA: caCert}
	require.NoError(t, access.Check())
	log := slog.New(slog.DiscardHandler)
	s := httptest.NewUnstartedServer(farther{access.Guard(pages, refuse, log)})
	s.TLS = access.TLS()
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	defer s.Close()

	ask := func(certs ...tls.Certificate) (int, error) {
		roots := x509.NewCertPool()
		pem, err := os.ReadFile(serverCert)
		require.NoError(t, err)
		roots.AppendCertsFromPEM(pem)
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}, DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: tr}).Get(s.URL + "/debug/store")
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Body.Close()
	}
	status, err := ask()
	require.NoError(t, err)
	require.Equal(t, 403, status, "without a certificate")
	good, err := tls.LoadX509KeyPair(certificate(t, ca.Leaf, ca.PrivateKey.(*ecdsa.PrivateKey)))
	require.NoError(t, err)
	status, err = ask(good)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	self, err := tls.LoadX509KeyPair(certificate(t, nil, nil))
	require.NoError(t, err)
	status, err = ask(self)
	require.True(t, err != nil || status == 401, "a certificate of another CA: %d", status)
}

// farther makes requests come from another machine.
type farther struct{ http.Handler }

func (f farther) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.RemoteAddr = "10.1.2.3:9"
	f.Handler.ServeHTTP(w, r)
}

// certificate makes a certificate, signed by an issuer or itself, and returns its files.
func certificate(t *testing.T, issuer *x509.Certificate, by *ecdsa.PrivateKey) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: issuer == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	if issuer == nil {
		issuer, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, &key.PublicKey, by)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return writeFile(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		writeFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}
