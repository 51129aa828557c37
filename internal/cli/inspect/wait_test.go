package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/clitest"
)

// waitBriefly runs `moonsail wait` with a timeout that is just long enough for an answer.
func waitBriefly(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	for timeout := 30 * time.Millisecond; timeout < time.Minute; timeout *= 2 {
		status, out, errOut = moonsail(t, append([]string{"wait", "--timeout", timeout.String()}, args...)...)
		if !strings.Contains(out, "the control plane did not answer in this time") {
			break
		}
	}
	return status, out, errOut
}

func TestWaitForAFile(t *testing.T) {
	s := newShop(t)
	path := write(t, reviewsYAML)
	s.apply(write(t, strings.ReplaceAll(reviewsYAML, "hosts: [reviews]", "hosts: [ratings]")))
	s.place(where("web-1", distribution.StateACKed))

	status, out, _ := waitBriefly(t, path, "--address", s.url)
	require.Equal(t, int(exitTimeout), status, "the older version is in force")
	require.Contains(t, out, "not reached within")
	require.Contains(t, out, "the control plane has another version of it")

	// As in kubectl, --namespace applies to objects without a namespace.
	nameless := write(t, strings.ReplaceAll(reviewsYAML, ", namespace: shop", ""))
	_, out, _ = waitBriefly(t, nameless, "-n", "shop", "--address", s.url)
	require.Contains(t, out, "VirtualService/shop/reviews: ")

	applied := make(chan struct{})
	go func() { defer close(applied); s.apply(path) }() // while the command waits
	status, out, errOut := moonsail(t, "wait", path, "--timeout", "1m", "--address", s.url)
	await.From(t, applied)
	require.Zero(t, status, out+errOut)
	require.Regexp(t, `^(reached after \d\S+|already distributed)\n`, out)
	require.Regexp(t, `VirtualService/shop/reviews: distributed to 1 of 1 proxies \(100 %\); revision \d+ took \d\S+\n`, out)
	status, out, _ = moonsail(t, "wait", path, "--timeout", "1m", "--address", s.url)
	require.Zero(t, status)
	require.Regexp(t, `^already distributed\nVirtualService/shop/reviews: .*; revision \d+ took \d\S+\n`, out, "the command's own time is not the change's")
}

// TestWaitLeavesOutOtherSecrets checks that wait does not wait for a Secret of an application, which no control plane reads in a
// cluster.
func TestWaitLeavesOutOtherSecrets(t *testing.T) {
	s := newShop(t)
	const secret = "\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: app, namespace: shop}\nstringData: {tls.crt: a, tls.key: b}\n"
	const gateway = "\n---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: shop}\n" +
		"spec: {selector: {app: g}, servers: [{hosts: [a.example.com], port: {number: 443, name: https, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: app}}]}\n"
	s.apply(write(t, reviewsYAML+gateway))
	s.place(where("web-1", distribution.StateACKed))

	status, out, errOut := moonsail(t, "wait", write(t, reviewsYAML+secret), "--timeout", "1m", "--address", s.url)
	require.Zero(t, status, out+errOut)
	require.Contains(t, out, "Secret/shop/app: not waited for: no object names it, so the control plane does not read it\n")
	for name, text := range map[string]string{"named by an object": reviewsYAML + gateway + secret, "alone": secret} {
		status, out, _ = waitBriefly(t, write(t, text), "--address", s.url)
		require.Equal(t, int(exitTimeout), status, name)
		require.Contains(t, out, "Secret/shop/app: the control plane has not seen it: check that it reads this configuration, and run 'moonsail analyze /mesh' to find why an object is not used\n", name)
	}
	s.apply(write(t, strings.ReplaceAll(secret, "a,", "older,")))
	status, out, _ = waitBriefly(t, write(t, reviewsYAML+secret), "--address", s.url)
	require.Equal(t, int(exitTimeout), status, "an object of the cluster names it")
	require.Contains(t, out, "Secret/shop/app: the control plane has another version of it")
}

func TestWaitReportsProxiesBehind(t *testing.T) {
	s := newShop(t)
	path := write(t, reviewsYAML)
	s.apply(path)
	s.place(where("web-1", distribution.StateACKed), where("web-2", distribution.StateACKed), where("web-3", distribution.StateACKed),
		where("stopped", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "RDS", Since: lately()}))
	status, out, _ := waitBriefly(t, path, "--address", s.url)
	require.Equal(t, int(exitTimeout), status)
	require.Contains(t, out, "distributed to 3 of 4 proxies (75 %); 1 behind\n")
	require.Regexp(t, `  stopped.shop: has not answered RDS for 2m3\ds\n`, out)
	status, _, _ = moonsail(t, "wait", path, "--for", "distribution=75%", "--timeout", "1m", "--address", s.url)
	require.Zero(t, status)

	s.place(where("web-1", distribution.StateACKed),
		where("old", distribution.StateRefused, distribution.Reason{Cause: distribution.CauseRefused, Type: "RDS", Names: []string{"80"}, Text: "Envoy's words"}))
	status, out, _ = moonsail(t, "wait", "vs/reviews", "--timeout", "1m", "--address", s.url)
	require.Equal(t, int(exitRefused), status, "without waiting for the timeout")
	require.Contains(t, out, "  old.shop: refused RDS 80: Envoy's words\n")
	status, out, _ = moonsail(t, "wait", "vs/reviews", "--refused-too", "-o", "json", "--timeout", "1m", "--address", s.url)
	require.Zero(t, status)
	require.Contains(t, out, `"reached": true`)
}

// TestWaitReportsAll checks that all refused objects are reported.
func TestWaitReportsAll(t *testing.T) {
	s := newShop(t)
	path := write(t, reviewsYAML+"\n---\n"+strings.ReplaceAll(reviewsYAML, "name: reviews", "name: later"))
	s.apply(path)
	s.place(where("old", distribution.StateRefused, distribution.Reason{Cause: distribution.CauseRefused, Type: "RDS", Names: []string{"80"}, Text: "Envoy's words"}))
	status, out, _ := moonsail(t, "wait", path, "--timeout", "1m", "--address", s.url)
	require.Equal(t, int(exitRefused), status)
	require.Equal(t, 2, strings.Count(out, "  old.shop: refused RDS 80: Envoy's words\n"), out)
}

func TestWaitForAVersion(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML))
	status, out, _ := waitBriefly(t, "vs/reviews", "-n", "shop", "--resource-version", "81", "--address", s.url)
	require.Equal(t, int(exitTimeout), status)
	require.Contains(t, out, "another version")
	status, _, _ = waitBriefly(t, "vs/coming", "-n", "shop", "--resource-version", "1", "--address", s.url)
	require.Equal(t, int(exitTimeout), status, "the version may still arrive")
}

// TestPartOfAVersion checks what commands print about an object whose valid part is in force, because no version without errors
// is known.
func TestPartOfAVersion(t *testing.T) {
	s := newShop(t)
	path := write(t, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - {match: [{uri: {prefix: /a}}], route: [{destination: {host: a}}], timeout: 5x}
  - {route: [{destination: {host: b}}]}
`)
	s.apply(path)
	s.refuse(path)
	_, out, _ := moonsail(t, "explain", "vs/reviews", "--address", s.url)
	require.Contains(t, out, "\n  a part of its newest version is refused, at "+path+":7\n")
	require.NotContains(t, out, "\n  its newest version")
	status, _, errOut := moonsail(t, "wait", "vs/reviews", "--timeout", "1m", "--address", s.url)
	require.NotZero(t, status)
	require.Contains(t, errOut, "error: it has errors, so the control plane uses only a part of it: VirtualService/shop/reviews: spec.http[0].timeout: ")

	list := s.problems[1:] // after the warning that a part is in force
	w := &explain.Why{Verdict: &explain.CallVerdict{}, Outbound: &explain.Passage{Result: &simulate.Result{}, Objects: []explain.Source{
		{Object: list[0].Object, Decides: "route", Error: &list[0], Partly: true},
	}}}
	var b strings.Builder
	require.NoError(t, printWhy(newWhyCommand(), &b, w))
	require.Contains(t, b.String(), "\n      a part of its newest version is refused, at "+path+":7: spec.http[0].timeout: ")
}

// TestWaitForRefusedVersion checks that wait fails for an object whose newest version has errors, unless a version is given.
func TestWaitForRefusedVersion(t *testing.T) {
	s := newShop(t)
	path := write(t, reviewsYAML)
	s.apply(path)
	s.place(where("web-1", distribution.StateACKed))
	inForce := s.store.Snapshot().Get(model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"}).Metadata().ResourceVersion
	broken := write(t, strings.ReplaceAll(reviewsYAML, "hosts:", "host:"))
	s.refuse(broken)

	const message = `: VirtualService/shop/reviews: spec.host: unknown field; did you mean "hosts"?` + "\n  where: "
	fileStatus, _, fileErr := moonsail(t, "wait", broken, "--timeout", "1m", "--address", s.url)
	status, out, errOut := moonsail(t, "wait", "vs/reviews", "--timeout", "1m", "--address", s.url)
	require.Contains(t, fileErr, "error: it has errors, so the control plane will not use it"+message+broken)
	require.Equal(t, fileStatus, status, out+errOut)
	require.Contains(t, errOut, "error: it has errors, so the control plane does not use its newest version"+message+broken)
	_, out, _ = waitBriefly(t, write(t, strings.ReplaceAll(reviewsYAML, "hosts: [reviews]", "hosts: [other]")), "--address", s.url)
	require.Regexp(t, `the control plane has another version of it \(.*reviews.yaml:1\): its newest version is refused, at .*reviews.yaml:5: spec.host: unknown field`, out)
	require.Contains(t, errOut, "next:  see 'moonsail explain virtualservice/reviews -n shop --address "+s.url+"' for all problems\n")
	_, out, _ = moonsail(t, "explain", "vs/reviews", "--address", s.url)
	require.Contains(t, out, "\n  its newest version is refused, at "+broken+":5\n  error: spec.host: unknown field; did you mean \"hosts\"?\n")

	status, out, errOut = moonsail(t, "wait", "vs/reviews", "--resource-version", inForce, "--timeout", "1m", "--address", s.url)
	require.Zero(t, status, out+errOut)
	s.refuse(path)
	status, out, errOut = moonsail(t, "wait", "vs/reviews", "--timeout", "1m", "--address", s.url)
	require.Zero(t, status, out+errOut)
}

// TestIstioWait checks that the namespace follows the last dot, as in istioctl: names of objects may have dots.
func TestIstioWait(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, strings.ReplaceAll(reviewsYAML, "name: reviews", "name: api.example.com")))
	s.place(where("web-1", distribution.StateACKed))
	for _, args := range [][]string{{"api.example.com.shop"}, {"api.example.com.shop", "-n", "bank"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			args := append([]string{"wait", "virtualservice", "--timeout", "1m", "--address", s.url}, args...)
			status, out, errOut := clitest.Run(t, clitest.Root(NewIstioWaitCommand()), args...)
			require.Zero(t, status, out+errOut)
			require.Contains(t, out, "VirtualService/shop/api.example.com: distributed to 1 of 1 proxies (100 %)")
		})
	}
}

func TestWaitErrors(t *testing.T) {
	s := newShop(t)
	for name, tc := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no such object":              {[]string{"vs/nothing"}, terminal.ExitFailed, "error: VirtualService nothing: not found in any namespace\n"},
		"no such file":                {[]string{"nothing.yaml"}, terminal.ExitFailed, "cannot read it"},
		"mistyped kind":               {[]string{"virtualservce/reviews"}, terminal.ExitUsage, `error: "virtualservce": unknown kind; did you mean "virtualservice"?: use one of `},
		"no such file in a directory": {[]string{"mesh/reviews.yaml"}, terminal.ExitFailed, "cannot read it"},
		"two files":                   {[]string{"a.yaml", "b.yaml"}, terminal.ExitUsage, "error: a.yaml and b.yaml: give one file or directory, KIND/NAME, or KIND NAME\n"},
		"two objects":                 {[]string{"vs/a", "vs/b"}, terminal.ExitUsage, `error: "vs/a" and "vs/b": more than one object: use KIND/NAME or KIND NAME` + "\n"},
		"broken file":                 {[]string{write(t, strings.ReplaceAll(reviewsYAML, "hosts:", "host:"))}, terminal.ExitFailed, `error: it has errors, so the control plane will not use it: VirtualService/shop/reviews: spec.host: unknown field; did you mean "hosts"?` + "\n  where: /"},
		"no object in it":             {[]string{write(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n")}, terminal.ExitFailed, "no object that the mesh reads"},
		"invalid share":               {[]string{"vs/a", "--for", "distribution=200%"}, terminal.ExitUsage, "use distribution=P%"},
		"version and file":            {[]string{write(t, reviewsYAML), "--resource-version", "7"}, terminal.ExitUsage, "not allowed with a file"},
		"no answer":                   {[]string{"vs/a", "-n", "b", "--address", "127.0.0.1:1"}, terminal.ExitFailed, "no control plane answers"},
		"no answer, file":             {[]string{write(t, reviewsYAML), "--address", "127.0.0.1:1"}, terminal.ExitFailed, "no control plane answers"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"wait", "--address", s.url}, tc.args...)...)
			require.Equal(t, tc.status, status, out+errOut)
			require.Contains(t, errOut, tc.want)
		})
	}
}
