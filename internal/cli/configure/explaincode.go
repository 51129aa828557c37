package configure

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/terminal"
)

// allCodes is the value of --explain for the list of codes.
const allCodes = "all"

// completeCodes completes --explain, with the codes' titles.
func completeCodes(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	out := []cobra.Completion{cobra.CompletionWithDesc(allCodes, "list all codes")}
	for _, p := range code.Pages() {
		out = append(out, cobra.CompletionWithDesc(string(p.Code), p.Title))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// explainCode prints the page of a code, or a list of all codes.
func explainCode(w io.Writer, text string) error {
	if text == allCodes {
		t := terminal.NewTable("CODE", "ISTIOCTL", "MESSAGE")
		for _, p := range code.Pages() {
			t.Row(string(p.Code), terminal.OrDash(strings.Join(p.Istio, ", ")), p.Title)
		}
		return t.Write(w)
	}
	p, found := code.PageOf(text)
	if !found {
		return terminal.UsageError{Err: fmt.Errorf("--explain %q: unknown code%s: --explain %s lists them", text, spelling.DidYouMean(strings.ToUpper(text), codes()), allCodes)}
	}
	s := terminal.StyleFor(w)
	var b strings.Builder
	fix, block, _ := strings.Cut(p.Fix, "\n\n") // a block of code may follow the text
	fmt.Fprintf(&b, "%s\n\n%s\n\n%s\n", s.Bold(string(p.Code)+": "+p.Title), wrap(p.Cause), wrap(fix))
	if block != "" {
		fmt.Fprintf(&b, "\n%s\n", block)
	}
	if p.Example != "" {
		fmt.Fprintf(&b, "\nExample of the mistake:\n\n  %s\n", strings.ReplaceAll(strings.TrimSpace(strings.TrimSuffix(p.Example, "---\n")), "\n", "\n  "))
	}
	if len(p.Istio) > 0 {
		fmt.Fprintf(&b, "\nIn istioctl analyze: %s\n", strings.Join(p.Istio, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// width is the maximum width of a line of text.
const width = 100

// wrap breaks a paragraph into lines.
func wrap(text string) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len(word) > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}
