package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// allow is a policy of a version, with two rules: one for a block of addresses.
func allow(version, block string) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: allow, namespace: shop, labels: {v: %s}}
spec: {rules: [{from: [{source: {ipBlocks: [%s]}}]}, {to: [{operation: {methods: [GET]}}]}]}
`, version, block)
}

const meanwhile = "allow.yaml:1: warning: AuthorizationPolicy/shop/allow: no valid version is known: until it is corrected, only its valid rules allow requests"

func (f *fixture) rules() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.state[model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "shop", Name: "allow"}].(*model.AuthorizationPolicy).Rules)
}

// TestErrorInAPolicyOpensNothing follows a policy that gets an error, through a restart, until it is valid again.
func TestErrorInAPolicyOpensNothing(t *testing.T) {
	f := start(t, map[string]string{"allow.yaml": allow("v1", "10.0.0.0/8")})
	f.write("allow.yaml", allow("v2", "10.0.0.0/88"))
	f.complains("allow.yaml:4: error: AuthorizationPolicy/shop/allow: spec.rules[0].from[0].source.ipBlocks[0]")
	f.becomes("allow=v1")
	require.Equal(t, 2, f.rules(), "the last valid version stays whole")

	again := &fixture{recorder: &recorder{state: map[model.Key]model.Object{}}, t: t, dir: f.dir}
	again.run(f.dir)
	again.becomes("allow=v2")
	require.Equal(t, 1, again.rules(), "the last valid version is unknown: its valid rule applies")
	again.complains(meanwhile, "allow.yaml:4: error")
	again.write("allow.yaml", allow("v3", "10.0.0.0/99"))
	again.becomes("allow=v3")
	require.Equal(t, 1, again.rules(), "the policy was never valid as a whole, so it is not kept")
	again.write("allow.yaml", allow("v3", "10.0.0.0/99")+"---\n{")
	again.complains(meanwhile, "allow.yaml:4: error", "allow.yaml:6: error: is not valid YAML")
	again.becomes("allow=v3")

	again.write("allow.yaml", allow("v4", "10.0.0.0/9"))
	again.becomes("allow=v4")
	require.Equal(t, 2, again.rules())
	again.complains()
	require.NotContains(t, again.since(0), "-")
	again.write("allow.yaml", allow("v5", "here"))
	again.complains("allow.yaml:4: error")
	again.becomes("allow=v4")
}

// TestWholePoliciesGoBeforeParts checks that a mistake in one file removes nothing of another.
func TestWholePoliciesGoBeforeParts(t *testing.T) {
	f := start(t, map[string]string{"b.yaml": allow("v1", "10.0.0.0/8")})
	f.write("a.yaml", allow("v2", "here"))
	f.complains("a.yaml:1: error: AuthorizationPolicy/shop/allow: is already defined at ", "a.yaml:1: warning", "a.yaml:4: error")
	f.becomes("allow=v1")
	require.NoError(t, os.Remove(f.path("b.yaml")))
	f.becomes("allow=v2")
	f.write("a.yaml", allow("v3", "10.0.0.0/8"))
	f.becomes("allow=v3")
}

// TestPoliciesThatCannotBeReadHoldUpTheStart checks that an unreadable file without a known earlier state delays the start.
// After all files were read once, mistakes delay nothing.
func TestPoliciesThatCannotBeReadHoldUpTheStart(t *testing.T) {
	const unclosed, namespace = "spec: {rules: [", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {v: v1}}\n"
	good := allow("v1", "10.0.0.0/8")
	selector := `apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec: {selector: {matchLabels: 1}, jwtRules: [{issuer: a}]}
`
	for name, c := range map[string]struct{ file, problem string }{
		"syntax": {strings.Replace(good, "spec: {rules: [", unclosed+"]", 1), "a.yaml:"},
		"kind":   {strings.Replace(good, "kind: AuthorizationPolicy", "kind: AuthorizationPolice", 1), "a.yaml:2: error"},
		"name":   {strings.Replace(good, "name: allow, ", "", 1), "a.yaml:3: error"},
		"alias":  {"metadata: {annotations: {a: &version security.istio.io/v1, b: &kind AuthorizationPolicy}}\napiVersion: *version\nkind: *kind\n", "a.yaml:1: error"},
		"merged": {"<<: [{kind: AuthorizationPolicy}]\napiVersion: v1\n", "a.yaml:2: error"},
		"list":   {"kind: List\nitems: {<<: {kind: AuthorizationPolicy}}\n", "a.yaml:2: error: items: must be a list of objects"},
		"loop":   {"&loop\n<<: [*loop, {kind: AuthorizationPolicy}]\n", "a.yaml:1: error"},
	} {
		t.Run(name, func(t *testing.T) {
			f := prepare(t, map[string]string{"a.yaml": c.file, "b.yaml": namespace})
			f.watch(f.dir)
			f.becomes("shop=v1")
			f.complains("a.yaml: error: may have policies that cannot be read", c.problem)
			require.Zero(t, f.syncs(), "nothing is served")
			f.until(func() bool { return f.src.Waiting() != nil }, "waiting") // known once problems are reported
			require.ErrorContains(t, f.src.Waiting(), "a.yaml")
			f.write("a.yaml", good)
			f.until(func() bool { return f.syncs() > 0 }, "synced")
			require.NoError(t, f.src.Waiting())
			f.becomes("allow=v1 shop=v1")
			f.write("a.yaml", c.file)
			f.complains(c.problem)
			f.becomes("allow=v1 shop=v1")
		})
	}
	f := prepare(t, map[string]string{"a.yaml": selector, "b.yaml": namespace + "---\n{"})
	f.watch(f.dir)
	f.becomes("shop=v1")
	require.Zero(t, f.syncs())
	require.NoError(t, os.Remove(f.path("a.yaml")))
	f.until(func() bool { return f.syncs() > 0 }, "synced, though something else cannot be read")
}

// TestUnreadablePathsHoldUpTheStart checks that unreadable files and directories delay the start until they are removed,
// alone or with their parent directory.
func TestUnreadablePathsHoldUpTheStart(t *testing.T) {
	link := func(path string) error { return os.Symlink(path, path) }
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	deep := strings.Repeat("/d", maxTreeDepth)
	for path, c := range map[string]struct {
		problem string
		make    func(path string) error
	}{
		"sub/pipe.yaml": {"sub/pipe.yaml: error: cannot be read", pipe},
		"sub/loop.yaml": {"sub/loop.yaml: error: cannot be read", link},
		"sub/loop":      {"sub/loop: error: cannot be read", link},
		"sub" + deep:    {"nested deeper than", func(path string) error { return os.MkdirAll(path, 0o755) }},
	} {
		for _, moved := range []string{path, "sub"} {
			t.Run(c.problem+" "+moved, func(t *testing.T) {
				f := prepare(t, map[string]string{"b.yaml": ns("shop", "v1")})
				require.NoError(t, os.MkdirAll(filepath.Dir(f.path(path)), 0o755))
				require.NoError(t, c.make(f.path(path)))
				f.watch(f.dir)
				f.becomes("shop=v1")
				f.complains(c.problem, "may have policies that cannot be read")
				require.Zero(t, f.syncs())
				require.NoError(t, os.Rename(f.path(moved), filepath.Join(t.TempDir(), "elsewhere")))
				f.until(func() bool { return f.syncs() > 0 }, "synced")
				f.complains()
			})
		}
	}
}
