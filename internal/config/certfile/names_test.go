package certfile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	pair, ok := Pair("/etc/certs/tls.crt", "/etc/certs/tls.key")
	require.True(t, ok)
	require.Equal(t, "file-cert:/etc/certs/tls.crt~/etc/certs/tls.key", pair)
	roots, ok := Roots("/etc/certs/ca.crt", "")
	require.True(t, ok)
	require.Equal(t, "file-root:/etc/certs/ca.crt", roots)
	both, ok := Roots(System, "crl.pem")
	require.True(t, ok)
	require.Equal(t, "file-root:system~crl.pem", both)
	for name, want := range map[string]Secret{
		pair:  {Certificate: "/etc/certs/tls.crt", Key: "/etc/certs/tls.key"},
		roots: {CAs: "/etc/certs/ca.crt"},
		both:  {CAs: System, Revoked: "crl.pem"},
	} {
		got, ok := Parse(name)
		require.True(t, ok, name)
		require.Equal(t, want, got)
	}
	_, ok = Pair("/a~b", "/c")
	require.False(t, ok, "whose name would be that of other files, too")
	_, ok = Roots("/a", "/b~c")
	require.False(t, ok)
}

func TestOtherNames(t *testing.T) {
	for _, name := range []string{
		"", "default", "ROOTCA", "kubernetes://x", "file-cert:", "file-cert:/a", "file-cert:/a~", "file-cert:~/b", "file-cert:/a~/b~/c",
		"file-root:", "file-root:~/b", "file-root:/a~", "file-root:/a~/b~/c", "FILE-ROOT:/a",
	} {
		_, ok := Parse(name)
		require.False(t, ok, name)
	}
}
