package client_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCredentials checks that a token is sent to this machine, or with TLS, and never in plain text to another machine.
func TestCredentials(t *testing.T) {
	var got string
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"proxies":[]}`))
	})
	plain, secure := httptest.NewServer(pages), httptest.NewTLSServer(pages)
	redirect := httptest.NewServer(http.RedirectHandler(plain.URL+"/elsewhere", http.StatusFound))
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer redirect.Close()
	defer refusing.Close()
	defer plain.Close()
	defer secure.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	token, empty := file("token", "0123456789abcdef\nanother\n"), file("empty", "\n")
	ca := file("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	for name, c := range map[string]struct {
		args   []string
		status int
		fails  string
		sent   string
	}{
		"no token":             {[]string{"--address", plain.URL}, 0, "", ""},
		"a token":              {[]string{"--address", plain.URL, "--token-file", token}, 0, "", "Bearer 0123456789abcdef"},
		"a token over TLS":     {[]string{"--address", secure.URL, "--token-file", token, "--ca-file", ca}, 0, "", "Bearer 0123456789abcdef"},
		"untrusted server":     {[]string{"--address", secure.URL, "--token-file", token}, 1, "certificate", ""},
		"plain text elsewhere": {[]string{"--address", "mesh.example:15014", "--token-file", token}, 2, "not sent to mesh.example:15014 in plain text", ""},
		"a redirect": {[]string{"--address", redirect.URL, "--token-file", token}, 1,
			"the answer is a redirect to " + plain.URL + "/elsewhere, which is not followed", ""},
		"a password":              {[]string{"--address", strings.Replace(refusing.URL, "http://", "http://user:hunter2@", 1)}, 1, "where: control plane at " + refusing.URL + "\n", ""},
		"empty token file":        {[]string{"--address", plain.URL, "--token-file", empty}, 2, "the file is empty", ""},
		"no token file":           {[]string{"--address", plain.URL, "--token-file", token + "x"}, 2, "--token-file: open", ""},
		"certificate without key": {[]string{"--address", secure.URL, "--cert-file", ca}, 2, "--cert-file and --key-file: give both or none", ""},
		"invalid CA":              {[]string{"--address", secure.URL, "--ca-file", token}, 2, "no certificate found", ""},
		"invalid certificate":     {[]string{"--address", secure.URL, "--cert-file", token, "--key-file", token}, 2, "--cert-file, --key-file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got = ""
			status, _, errOut := moonsail(t, append([]string{"proxies"}, c.args...)...)
			require.Equal(t, c.status, status, errOut)
			require.Contains(t, errOut, c.fails)
			require.NotContains(t, errOut, "hunter2")
			require.Equal(t, c.sent, got)
		})
	}
}
