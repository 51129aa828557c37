package http2

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
)

// rekeying is the client's side of TLS 1.3, which sends what a tls.Conn does not: key updates. It writes the records itself, from
// the first one after the handshake.
type rekeying struct {
	*tls.Conn
	t        *testing.T
	raw      net.Conn
	secret   []byte // of the records that it sends
	sequence uint64
}

// rekey does the handshake on a connection.
func rekey(t *testing.T, raw net.Conn, conf *tls.Config) *rekeying {
	t.Helper()
	var keys bytes.Buffer
	conf = conf.Clone()
	conf.MinVersion, conf.KeyLogWriter = tls.VersionTLS13, &keys
	c := &rekeying{Conn: tls.Client(raw, conf), t: t, raw: raw}
	require.NoError(t, c.Handshake())
	require.Equal(t, tls.TLS_AES_128_GCM_SHA256, c.ConnectionState().CipherSuite)
	for line := range strings.Lines(keys.String()) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			require.NoError(t, err)
			c.secret = secret
		}
	}
	require.NotEmpty(t, c.secret)
	return c
}

// derived returns what follows from the secret, as RFC 8446 says in section 7.1.
func (c *rekeying) derived(label string, size int) []byte {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(size)) //nolint:gosec // it is small
	info = append(append(append(info, byte(len(label))), label...), 0)
	b, err := hkdf.Expand(sha256.New, c.secret, string(info), size)
	require.NoError(c.t, err)
	return b
}

// record writes a record.
func (c *rekeying) record(typ byte, content []byte) error {
	block, err := aes.NewCipher(c.derived("key", 16))
	require.NoError(c.t, err)
	seal, err := cipher.NewGCM(block)
	require.NoError(c.t, err)
	nonce := c.derived("iv", 12)
	for i, b := range binary.BigEndian.AppendUint64(nil, c.sequence) {
		nonce[4+i] ^= b
	}
	c.sequence++
	size := len(content) + 1 + seal.Overhead()
	head := []byte{23, 3, 3, byte(size >> 8), byte(size)}
	_, err = c.raw.Write(seal.Seal(head, nonce, append(bytes.Clone(content), typ), head)) //nolint:gosec // the nonce is the protocol's
	return err
}

// Write implements net.Conn, for writes of less than a record.
func (c *rekeying) Write(b []byte) (int, error) { return len(b), c.record(23, b) }

// update sends a key update, which the server must answer with its own.
func (c *rekeying) update() error {
	err := c.record(22, []byte{24, 0, 0, 1, 1})
	c.secret, c.sequence = c.derived("traffic upd", sha256.Size), 0
	return err
}

// TestKeyUpdatesUnread: answers to key updates that the peer does not read end the connection before they take much memory.
func TestKeyUpdatesUnread(t *testing.T) {
	conf := certificates(t)
	v := serve(t, Options{TLS: conf.server})
	raw, err := net.Dial("tcp", v.addr)
	require.NoError(t, err)
	client := rekey(t, raw, conf.client)
	p := newPeer(t, client)
	p.greet(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1 << 30})
	require.NoError(t, p.fr.WriteWindowUpdate(0, 1<<30))
	require.NoError(t, client.update())
	p.open(hold)
	c := v.call(0)
	for c.Pending() == 0 {
		require.NoError(t, c.Send([][]byte{[]byte(long(1 << 20))}))
	}
	for updates := 0; client.update() == nil; updates++ {
		if updates%15 == 0 && p.fr.WriteWindowUpdate(0, smallCredit) != nil { // more updates in a row are refused
			break
		}
		s := c.conn.socket
		s.mu.Lock()
		rest := len(s.rest)
		s.mu.Unlock()
		require.LessOrEqual(t, rest, maxUnwritten+1<<10)
	}
	eventually(t, "the connection has ended", func() bool { return v.s.open() == 0 })
	require.ErrorIs(t, c.conn.socket.failure(), errFlood)
}
