package configure

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/code"
)

// TestEachCodeHasAPage checks that each constant of package code has a page, and each page a constant.
func TestEachCodeHasAPage(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../config/code/code.go", nil, 0)
	require.NoError(t, err)
	want := map[code.Code]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && v.Type != nil {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			require.False(t, want[code.Code(text)], "%s is used twice", text)
			want[code.Code(text)] = true
		}
		return true
	})
	got := map[code.Code]bool{}
	for _, p := range code.Pages() {
		got[p.Code] = true
	}
	require.Equal(t, want, got)
}

// TestExamplesOfCodes checks that the example of each code has its mistake.
func TestExamplesOfCodes(t *testing.T) {
	for _, p := range code.Pages() {
		if p.Example == "" {
			continue
		}
		t.Run(string(p.Code), func(t *testing.T) {
			_, out, errOut := withInput(t, p.Example, "analyze", "-")
			require.Empty(t, errOut)
			require.Contains(t, out, "["+string(p.Code)+"]")
		})
	}
}

func TestExplainCode(t *testing.T) {
	status, out, _ := moonsail(t, "analyze", "--explain", "ms1601")
	require.Zero(t, status)
	require.Contains(t, out, "MS1601: The label of injection has no valid value\n\n")
	require.Contains(t, out, "\n  metadata: {name: shop, labels: {istio-injection: enable}}\n")
	require.Contains(t, out, "In istioctl analyze: IST0125\n")
	for _, line := range strings.Split(out, "\n") {
		require.LessOrEqual(t, len(line), width)
	}
	_, out, _ = moonsail(t, "analyze", "--explain", "all")
	require.Contains(t, out, "MS1201  IST0101")
	_, _, errOut := moonsail(t, "analyze", "--explain", "MS1l01")
	require.Contains(t, errOut, `unknown code; did you mean "MS1`)
}

// TestSuppress checks codes and objects of --suppress, and the annotation of objects.
func TestSuppress(t *testing.T) {
	const counted = "2 objects: 2 errors, 0 warnings, 1 info\n"
	for value, want := range map[string]string{
		"":                                      counted,
		"MS1201":                                "1 error, 0 warnings, 1 info, 1 suppressed\n",
		"ms1201=VirtualService/reviews.shop":    "1 suppressed\n",
		"MS1201=VirtualService reviews.shop":    "1 suppressed\n",
		"MS1201=VirtualService/shop/reviews":    "1 suppressed\n",
		"MS1201=VirtualService/*.shop":          "1 suppressed\n",
		"IST0101=*":                             "1 suppressed\n",
		"IST0102":                               counted,
		"MS1201=VirtualService/reviews.default": counted,
		"MS1201=DestinationRule/*":              counted,
		"MS1203":                                counted,
	} {
		t.Run(value, func(t *testing.T) {
			args := []string{"analyze", "-"}
			if value != "" {
				args = append(args, "--suppress", value)
			}
			_, out, errOut := withInput(t, badYAML, args...)
			require.Empty(t, errOut)
			require.Contains(t, out, want)
		})
	}
	for value, want := range map[string]string{"MS1101": "1 suppressed", "IST0106": "1 suppressed", `"*"`: "1 suppressed", "MS1201, MS1101": "1 suppressed", "MS1201": counted} {
		t.Run("annotation "+value, func(t *testing.T) {
			annotated := strings.Replace(badYAML, "{name: typo, ", "{name: typo, annotations: {galley.istio.io/analyze-suppress: "+strconv.Quote(strings.Trim(value, `"`))+"}, ", 1)
			_, out, _ := withInput(t, annotated, "analyze", "-")
			require.Contains(t, out, want)
		})
	}
}

// TestNamespaces checks the default namespace of files, and that objects of others are left out.
func TestNamespaces(t *testing.T) {
	text := strings.Replace(badYAML, "{name: typo, namespace: shop}", "{name: typo}", 1)
	for _, tc := range []struct{ flag, value, want string }{
		{"-n", "shop", "2 objects: 2 errors, 0 warnings, 1 info\n"},
		{"-n", "other", "2 objects: 2 errors, 0 warnings, 0 infos\n"},
		{"-A", "", "2 objects: 3 errors, 0 warnings, 1 info\n"},
	} {
		t.Run(tc.flag+tc.value, func(t *testing.T) {
			args := []string{"analyze", "-", tc.flag}
			if tc.value != "" {
				args = append(args, tc.value)
			}
			_, out, errOut := withInput(t, text, args...)
			require.Empty(t, errOut)
			require.Contains(t, out, tc.want)
		})
	}
}

// TestRecursive checks that folders inside of directories are read unless they are left out.
func TestRecursive(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "more"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(goodYAML), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more", "b.yaml"), []byte(strings.ReplaceAll(goodYAML, "reviews", "ratings")), 0o600))
	for flag, want := range map[string]string{"-R": "2 files, 2 objects", "--recursive=false": "1 file, 1 object"} {
		_, out, _ := moonsail(t, "analyze", dir, flag)
		require.Contains(t, out, want)
	}
}

// TestSARIF checks results, their rules and places.
func TestSARIF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(path, []byte(badYAML), 0o600))
	status, out, _ := moonsail(t, "analyze", path, "-o", "sarif")
	require.Equal(t, 1, status)
	var got sarifLog
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, "2.1.0", got.Version)
	require.Len(t, got.Runs, 1)
	run := got.Runs[0]
	require.Len(t, run.Results, 3)
	for _, r := range run.Results {
		require.Equal(t, r.RuleID, run.Tool.Driver.Rules[r.RuleIndex].ID)
	}
	last := run.Results[2]
	require.Equal(t, "MS1101", last.RuleID)
	require.Equal(t, "error", last.Level)
	require.Equal(t, "note", run.Results[0].Level)
	require.Equal(t, filepath.ToSlash(path), last.Locations[0].Physical.Artifact.URI)
	require.Equal(t, 22, last.Locations[0].Physical.Region.StartLine)
	require.Equal(t, "VirtualService/shop/typo", last.Locations[0].Logical[0].Name)
	require.Contains(t, run.Tool.Driver.Rules[run.Results[2].RuleIndex].HelpURI, "messages.md#ms1101")
}
