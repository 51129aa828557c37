package terminal

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestControlCharactersAreVisible checks that no output of a command has characters that a terminal obeys.
func TestControlCharactersAreVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n":                   "plain\ttext\n",
		"größer 中文 🚢":                     "größer 中文 🚢",
		"\x1b]52;c;ZXZp\a":                `\u001b]52;c;ZXZp\u0007`,
		"a\rb\x00\x7f":                    `a\u000db\u0000\u007f`,
		"\u009b5m\u0085":                  `\u009b5m\u0085`,
		"\x9b5m":                          `\u009b5m`,
		"\u202egpj.\u202c \u2066x\u2069":  `\u202egpj.\u202c \u2066x\u2069`,
		"line\u2028another":               `line\u2028another`,
		"\x1b[31mred\x1b[0m, no terminal": `\u001b[31mred\u001b[0m, no terminal`,
	} {
		root := &cobra.Command{Use: "moonsail"}
		SetUp(root)
		one := &cobra.Command{Use: "one", RunE: func(cmd *cobra.Command, _ []string) error {
			for _, w := range []io.Writer{cmd.OutOrStdout(), cmd.ErrOrStderr()} {
				_, err := io.WriteString(w, text)
				require.NoError(t, err)
			}
			_, err := io.WriteString(Raw(cmd.OutOrStdout()), text)
			return err
		}}
		root.AddCommand(one)
		var out, errOut bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs([]string{"one"})
		require.Equal(t, ExitOK, Run(t.Context(), root))
		require.Equal(t, want+text, out.String(), "%q", text)
		require.Equal(t, want, errOut.String(), "%q", text)
	}
}

// TestControlCharactersInJSON checks that the escapes mean the same characters in JSON.
func TestControlCharactersInJSON(t *testing.T) {
	value := "\x1b]0;x\a\u009b5m\u202e\x7f\n\\"
	var b bytes.Buffer
	require.NoError(t, json.NewEncoder(visibleTo(&b)).Encode(value))
	require.NotContains(t, b.String(), "\u009b")
	require.NotContains(t, b.String(), "\u202e")
	var back string
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, value, back)
}

// TestPaintStays checks that the colours of Style reach a terminal, and no other sequence, also if writes divide them.
func TestPaintStays(t *testing.T) {
	s := Style{colour: true}
	text := s.Bad("é") + s.Dim("x") + "\x1b[2J\x1b[5m\x1b[31" + "\x1b[1;31m" + s.Bold("b") + "\x1b]0;t\a"
	want := s.Bad("é") + s.Dim("x") + `\u001b[2J\u001b[5m\u001b[31\u001b[1;31m` + s.Bold("b") + `\u001b]0;t\u0007`
	for size := 1; size <= len(text); size++ {
		var b bytes.Buffer
		w := &visibleWriter{to: &b, painted: true}
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			wrote, err := w.Write(rest[:n])
			require.NoError(t, err)
			require.Equal(t, n, wrote)
			rest = rest[n:]
		}
		require.Equal(t, want, b.String(), "writes of %d bytes", size)
	}
}
