package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestShortenedKeepsTheReason: Envoy prints the resource before the reason.
func TestShortenedKeepsTheReason(t *testing.T) {
	long := Shortened("Error adding/updating listener(s) x: " + strings.Repeat("a", 4*maxMessage) + ": the reason")
	require.Len(t, long, maxMessage)
	require.True(t, strings.HasPrefix(long, "Error adding/updating listener(s) x: aaa"), long)
	require.True(t, strings.HasSuffix(long, "aaa: the reason"), long)
	require.Equal(t, "short", Shortened("short"))
	require.Equal(t, "of Envoy", Shortened("of Envoy\n\n"))
	for i := range 4 {
		cut := Shortened(strings.Repeat("x", i) + strings.Repeat("🙂", maxMessage))
		require.True(t, utf8.ValidString(cut), "characters are not cut")
		require.LessOrEqual(t, len(cut), maxMessage)
		require.Greater(t, len(cut), maxMessage-2*utf8.UTFMax)
	}
}

// TestMessageForEachResource: Envoy reports all refused resources of a response in
// one message.
func TestMessageForEachResource(t *testing.T) {
	const message = "Error adding/updating listener(s) 10.0.0.0_80: access log of 0.0.0.0_80\n0.0.0.0_80: bad\npath: x\nvirtualInbound: wasm\n"
	all := []string{"0.0.0.0_80", "10.0.0.0_80", "virtualInbound"}
	about := attribute(all, message)
	require.Equal(t, all, about.bad)
	require.Equal(t, "access log of 0.0.0.0_80", about.messageFor("10.0.0.0_80"))
	require.Equal(t, "bad\npath: x", about.messageFor("0.0.0.0_80"))
	require.Equal(t, "wasm", about.messageFor("virtualInbound"))
	require.Equal(t, strings.TrimSpace(message), attribute(all[2:], message).messageFor("virtualInbound"), "the whole message is about the only one")
	none := attribute(all, "I like neither")
	require.Equal(t, all, none.rest)
	require.Equal(t, "I like neither", none.messageFor("virtualInbound"))
}

// TestAttributionAgreesWithASearch: one pass over the message finds what a search for each name finds.
func TestAttributionAgreesWithASearch(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // need not be secret
	parts := []string{"cluster_1", "cluster_1.a", "cluster_1.a: b", "outbound|80||*.x", ": ", " ", ", ", ".", "\n", "b", "🙂"}
	text := func(n int) (s string) {
		for range n {
			s += parts[r.IntN(len(parts))]
		}
		return s
	}
	for range 2000 {
		all := append([]string{text(1 + r.IntN(3))}, parts[:4]...)
		message := text(r.IntN(30))
		about := attribute(all, message)
		for _, n := range all {
			require.Equal(t, distinctive(n) && mentions(message, n), slices.Contains(about.bad, n), "%q in %q", n, message)
			if slices.Contains(about.bad, n) {
				require.Equal(t, indexOfName(message, n), about.from[n], "%q in %q", n, message)
			}
		}
	}
}

// mentions reports whether a message contains a name as a whole word.
func mentions(message, name string) bool {
	for at := range message {
		rest, ok := strings.CutPrefix(message[at:], name)
		if ok && (at == 0 || !nameByte(message[at-1])) && endsName(rest) {
			return true
		}
	}
	return false
}

// indexOfName returns where a message begins to describe a name; -1 if it does not.
func indexOfName(message, name string) int {
	for at := range message {
		if strings.HasPrefix(message[at:], name+": ") && (at == 0 || !nameByte(message[at-1])) {
			return at
		}
	}
	return -1
}

// TestLongRefusals: a refusal of many resources costs one pass over its message, and only short parts of the
// message are kept. A search for each name, in the part for each other, would take hours.
func TestLongRefusals(t *testing.T) {
	const n = 30_000
	tab := table.New("t")
	var updates []table.Update
	var message strings.Builder
	for i := range n {
		name := fmt.Sprintf("outbound|80||service-%d", i)
		updates = append(updates, table.Update{Type: resource.Cluster, Name: name, Resource: &resource.Encoded{Version: "1"}})
		fmt.Fprintf(&message, "%s: reason %d\n", name, i)
	}
	message.WriteString(strings.Repeat(" filler", 1<<20))
	tab.Commit(1, updates)
	l := New(Delta, VirtualHosts, names.NewPool(), []*table.State{tab.State()})
	url := []byte(resource.Cluster.URL())
	require.True(t, l.Handle(&Request{TypeURL: url, Subscribe: [][]byte{[]byte("*")}}))
	sent := l.Next(nil)
	require.Len(t, sent, 1)
	text := message.String()
	require.True(t, l.Handle(&Request{TypeURL: url, Nonce: fmt.Append(nil, sent[0].Nonce), Error: &Error{Message: text}}))
	held := l.watches[cds].held
	require.Len(t, held, n)
	first, last := uintptr(unsafe.Pointer(unsafe.StringData(text))), uintptr(len(text))
	for i := range n - 1 { // the filler belongs to the last one
		h := held[fmt.Sprintf("outbound|80||service-%d", i)]
		require.Equal(t, fmt.Sprint("reason ", i), h.Message)
		require.False(t, uintptr(unsafe.Pointer(unsafe.StringData(h.Message)))-first < last, "it keeps the whole message")
	}
}
