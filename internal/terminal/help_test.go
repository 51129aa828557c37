package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrap(t *testing.T) {
	const text = `Paragraphs are filled: this one
is short.

Title:
  An indented paragraph continues on the next line if the line before it is full, and so
  does this one.
  Short lines stay separate.
  Each of them.

  ill     a line of a list continues below its
          last column
  blind   b
Exit status: 0 well.`
	require.Equal(t, `Paragraphs are filled: this one is short.

Title:
  An indented paragraph continues on the next
  line if the line before it is full, and so
  does this one.
  Short lines stay separate.
  Each of them.

  ill     a line of a list continues below
          its last column
  blind   b
Exit status: 0 well.`, wrap(text, 45))
}

func TestWrapFlags(t *testing.T) {
	const lines = "  -h, --help           help for it\n      --address ADDR   ADDR of the control plane, as host:port\n"
	require.Equal(t, `  -h, --help           help for it
      --address ADDR   ADDR of the control plane, as
                       host:port
`, wrapFlags(lines, 58))
	require.Equal(t, `  -h, --help
          help for it
      --address ADDR
          ADDR of the control plane, as
          host:port
`, wrapFlags(lines, 40))
}
