package file

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config"
)

// TestPanicInADocument checks that a bug of the decoder is a problem of its file, of which the earlier objects stay in force.
func TestPanicInADocument(t *testing.T) {
	c := newCatalog()
	c.set("a.yaml", parse("a.yaml", []byte(docs(ns("a", "v1"), ns("b", "v1"))), config.Decoder{}), time.Time{})
	require.Len(t, c.objects(), 2)

	p := parse("a.yaml", []byte(ns("a", "v2")), config.Decoder{})
	var n yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(ns("b", "v2")), &n))
	p.decode("a.yaml", &n, func(*yaml.Node) config.Decoded { panic("out of range") })
	require.Len(t, c.set("a.yaml", p, time.Time{}), 1, "only a changes")
	require.Equal(t, []string{"v2", "v1"}, []string{label(c.objects()[0]), label(c.objects()[1])})
	require.Len(t, c.problems(), 1)
	require.Equal(t, "a.yaml:1: error: cannot be read: internal error: out of range; report this bug with the document", c.problems()[0].String())

	p = parsed{}
	require.NoError(t, yaml.Unmarshal([]byte(allow("v1", "10.0.0.0/8")), &n))
	p.decode("b.yaml", &n, func(*yaml.Node) config.Decoded { panic("out of range") })
	require.True(t, p.hidden, "nothing is served instead of a mesh without the policy")
}
