package choices_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/lab/choices"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// marks are texts that the configuration of a choice's sidecars contains and that of Moonsail's does not. With "-" it
// is the other way round.
var marks = map[string]string{
	"HTTP/1.1 between sidecars":      `-"istio-h2"`,
	"the kernel's choice of workers": `-"exact_balance"`,
	"exact_balance of clients, too":  `"stat_prefix":"balanced"`,
	"plain text":                     `-"require_client_certificate"`,
	"port of TCP":                    `-"inbound|http|18080"`,
	"buffers of 32 KiB":              `"per_connection_buffer_limit_bytes":32768`,
	"buffers of 128 KiB":             `"per_connection_buffer_limit_bytes":131072`,
	"windows of 64 KiB":              `"initial_stream_window_size":65536`,
	"windows of 1 MiB":               `"initial_connection_window_size":16777216`,
	"oghttp2":                        `"envoy.reloadable_features.http2_use_oghttp2":true`,
	"no istio_requests_total":        `-"requests_total"`,
	"no retries":                     `virtual-service/server`,
	"no retries at servers":          `"name":"once"`,
	"Envoy's circuit breakers":       `"max_pending_requests":1024`,
	"outlier detection":              `"outlier_detection"`,
	"all of Envoy's statistics":      `"regex":".*"`,
	"an access log as text":          `%REQ(USER-AGENT)%`,
	"an access log as JSON":          `"json_format"`,
	choices.Fresh:                    `destination-rule/fresh`,
	"fresh, no resumption":           `"max_session_keys":0`,
	"fresh, AES-128-GCM, TLS 1.2":    `"ECDHE-ECDSA-AES128-GCM-SHA256"`,
	"fresh, AES-256-GCM, TLS 1.2":    `"ECDHE-ECDSA-AES256-GCM-SHA384"`,
	"fresh, ChaCha20, TLS 1.2":       `"ECDHE-ECDSA-CHACHA20-POLY1305"`,
	"mine":                           `destination-rule/mine`,
}

// http1 are the choices without HTTP/2 between sidecars. Each other choice differs from Moonsail in one thing.
var http1 = map[string]bool{"HTTP/1.1 between sidecars": true, "plain text": true, "port of TCP": true, "mine": true}

const own = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: mine, namespace: $NAMESPACE}
spec: {host: server, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 7}}}}`

// some are the choices that a short test run measures: one that starts sidecars in another way, and one of the user's.
var some = []string{"oghttp2", "mine"}

// TestChoices checks that the Envoys of each choice have its configuration, differ from Moonsail's in nothing else, and
// answer requests.
func TestChoices(t *testing.T) {
	labtest.Temporary(t)
	o := choices.DefaultOptions()
	o.Programs, o.Envoy = labtest.Sidecars(t)
	o.Quick, o.Own = true, map[string]string{"mine": own}
	want := len(marks) + 3 // Moonsail's, the repeated one and the one without metrics have no mark
	if !labtest.Full() {
		o.Only = some
		want = len(some) + 1 // Moonsail's
	}
	e := choices.New(o)
	e.Rounds, e.Budget = 1, 20*time.Minute // an upper bound; it takes far less
	choices.Shorten(e, func(name string, p *pair.Pair) error { return shows(t.Context(), name, p) })
	r, err := experiment.Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, 1, r.Rounds)
	require.Len(t, r.Variants, want)
	for _, v := range r.Variants {
		require.Len(t, v.Samples, 1, v.Name)
		require.Zero(t, v.Samples[0]["failed"], v.Name)
		require.Positive(t, v.Samples[0]["cpu_1000"], v.Name)
	}
	require.Empty(t, labtest.LeftOver(t))
}

// shows waits until a pair's configuration contains the marks of its choice, and no others. Moonsail's contains none.
func shows(ctx context.Context, name string, p *pair.Pair) error {
	if name == choices.Ours {
		text, err := configuration(ctx, p)
		for choice, mark := range marks {
			if has := err == nil && strings.Contains(text, strings.TrimPrefix(mark, "-")); has != strings.HasPrefix(mark, "-") {
				return fmt.Errorf("%s: %q is there: %t (%w)", choice, mark, has, err)
			}
		}
		return err
	}
	mark, absent := strings.CutPrefix(marks[name], "-")
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for mark != "" {
		text, err := configuration(ctx, p)
		if err == nil && strings.Contains(text, mark) != absent {
			if h2 := strings.Contains(text, `"istio-h2"`); h2 == http1[name] {
				return fmt.Errorf("%s: HTTP/2 between sidecars: %t", name, h2)
			}
			return nil
		}
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s: the sidecars do not have %q (%w)", name, marks[name], err)
		}
	}
	return nil
}

// configuration returns what both Envoys have for the pair's service, as JSON without spaces.
func configuration(ctx context.Context, p *pair.Pair) (string, error) {
	var b strings.Builder
	for _, s := range p.Sidecars() {
		admin := envoy.NewAdmin(s.Admin)
		defer admin.Close()
		dump, err := admin.ConfigDump(ctx, url.Values{})
		if err != nil {
			return "", err
		}
		if err := ofPair(&b, dump, p.Namespace); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// ofPair leaves out the clusters, routes and ports of pairs that started earlier.
func ofPair(b *strings.Builder, dump []byte, namespace string) error {
	var all struct {
		Configs []map[string]json.RawMessage `json:"configs"`
	}
	if err := json.Unmarshal(dump, &all); err != nil {
		return err
	}
	for _, c := range all.Configs {
		for key, list := range c {
			parts := []json.RawMessage{list}
			if key != "bootstrap" && json.Unmarshal(list, &parts) != nil {
				continue // a date or a version
			}
			for _, part := range parts {
				text, err := json.Marshal(part)
				if err != nil {
					return err
				}
				if strings.Contains(string(text), namespace) || strings.Contains(string(text), `_18080"`) {
					b.Write(text)
				}
			}
		}
	}
	return nil
}

func TestCheck(t *testing.T) {
	for _, change := range []func(*choices.Options){
		func(o *choices.Options) { o.Concurrency = -1 },
		func(o *choices.Options) { o.Connections = 0 },
		func(o *choices.Options) { o.Rate = 1 },
		func(o *choices.Options) { o.Only = []string{"nothing"} },
	} {
		o := choices.DefaultOptions()
		require.NoError(t, o.Check())
		change(&o)
		require.Error(t, o.Check())
	}
}

// TestOnly checks that the choices that others are compared with are measured too, and the user's choices.
func TestOnly(t *testing.T) {
	o := choices.DefaultOptions()
	o.Only, o.Own = []string{"fresh, ChaCha20", "buffers"}, map[string]string{"mine": own}
	require.NoError(t, o.Check())
	var names []string
	e := choices.New(o)
	for _, v := range e.Variants {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{choices.Ours, "buffers of 32 KiB", "buffers of 128 KiB", choices.Fresh, "fresh, ChaCha20, TLS 1.2", "mine"}, names)
	require.Len(t, e.Compare, 4)
}
