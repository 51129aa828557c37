package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// open reads an archive: the text of each file by name.
func open(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	out := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		out[h.Name] = string(text)
	}
}

func text(s string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(s), nil }
}

func options() Options {
	return Options{Folder: "report", MaxFile: 1 << 20, MaxTotal: 1 << 22, Timeout: time.Minute, Now: time.Unix(1e9, 0).UTC()}
}

func write(t *testing.T, items []Item, o Options) (*Manifest, map[string]string) {
	t.Helper()
	var b bytes.Buffer
	m, err := Write(t.Context(), &b, items, o)
	require.NoError(t, err)
	return m, open(t, b.Bytes())
}

func privateKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// configMap is a ConfigMap with a text.
func configMap(text string) string {
	doc, _ := json.Marshal(map[string]any{"kind": "ConfigMap", "data": map[string]string{"file": text}})
	return string(doc)
}

// TestSecretsAreRemoved puts secrets of many forms everywhere, beside texts that only look like secrets.
func TestSecretsAreRemoved(t *testing.T) {
	key := privateKey(t)
	keyLine := strings.Split(key, "\n")[1]
	quoted, err := json.Marshal(key)
	require.NoError(t, err)
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlc2lnbmF0dXJl"
	const hidden = "hunter2-hunter2"                                                    // the value of all that follow
	const shaped, hexKey = "q7GhT0zPbX2mVr5LkWy9aQ", "0123456789abcdef0123456789abcdef" // values that look random
	encodedSecret, encodedKey := base64.StdEncoding.EncodeToString([]byte(hidden)), base64.StdEncoding.EncodeToString([]byte(key))
	docs := map[string]string{
		"key in text":           "some log\n" + key + "and more",
		"key in JSON":           `{"a":[{"pem":` + string(quoted) + `}]}`,
		"key cut off":           "log " + key[:120],
		"key in base64":         `{"tls":{"x":"` + encodedKey + `"}}`,
		"envoy's inline key":    `{"tls_certificate":{"private_key":{"inline_bytes":"` + encodedKey + `"},"certificate_chain":{"inline_string":"public"}}}`,
		"envoy's inline string": `{"private_key":{"inline_string":"` + hidden + `"}}`,
		"envoy's secret":        `{"generic_secret":{"secret":{"inline_string":"` + hidden + `"}}}`,
		"a Secret":              `{"kind":"Secret","metadata":{"name":"db"},"data":{"user":"` + encodedSecret + `"},"stringData":{"x":"` + hidden + `"}}`,
		"a list of Secrets":     `{"kind":"List","items":[{"kind":"Secret","data":{"any":"` + encodedSecret + `"}}]}`,
		"last applied":          `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"kind\":\"Secret\",\"data\":{\"any\":\"` + encodedSecret + `\"}}"}}}`,
		"a variable":            `{"env":[{"name":"DB_PASSWORD","value":"` + hidden + `"},{"name":"PATH","value":"/bin"}]}`,
		"a variable of a file":  `{"env":[{"name":"AWS_SECRET_ACCESS_KEY","value":"` + hidden + `"},{"name":"SESSION_TOKEN_NAME","value":"` + hidden + `"}]}`,
		"DB_PASS":               `{"env":[{"name":"DB_PASS","value":"` + hidden + `"}]}`,
		"MYSQL_PWD":             `{"env":[{"name":"MYSQL_PWD","value":"` + hidden + `"}]}`,
		"STRIPE_KEY":            `{"env":[{"name":"STRIPE_KEY","value":"` + hidden + `"},{"name":"KEY_2","value":"` + hidden + `"}]}`,
		"a variable's form":     `{"env":[{"name":"THING","value":"` + shaped + `"},{"name":"OTHER","value":"` + hexKey + `"}]}`,
		"a variable in a shell": `{"command":["sh","-c","export DB_PASS=` + hidden + `; APP_KEY='` + hidden + `' run"]}`,
		"a flag and its value":  `{"args":["--db-password","` + hidden + `","--sasl-pwd","` + hidden + `","-v"]}`,
		"a flag with a key":     `{"args":["--signing-key=` + hidden + `","--x-pass=` + hidden + `"]}`,
		"an argument's form":    `{"args":["--thing=` + shaped + `","` + hexKey + `"]}`,
		"a command line":        "app\x00--db-password\x00" + hidden + "\x00--my-key\x00" + hidden + "\x00--x-pwd=" + hidden + "\x00",
		"a command in a log":    "started app --admin-token " + hidden + " --port 80",
		"variables in a log":    "DB_PASS=" + hidden + " SMTP_PWD: " + hidden + " STRIPE_KEY='" + hidden + "'",
		"a token of Vault":      "VAULT hvs." + shaped,
		"a key of Azure":        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + hidden + ";",
		"a field":               `{"clientSecret":"` + hidden + `","apiKey":"` + hidden + `","deep":{"auth-token":"` + hidden + `"}}`,
		"an object of secrets":  `{"credentials":{"user":"u","x":"` + hidden + `"}}`,
		"a token":               "token was " + jwt + " and no more",
		"a token in JSON":       `{"message":"sent ` + jwt + `"}`,
		"a header":              "> Authorization: Bearer " + hidden,
		"a header in JSON":      `{"headers":[{"header":{"key":"authorization","value":"Basic ` + encodedSecret + `"}}]}`,
		"another header":        `{"headers":[{"header":{"key":"x-api-key","value":"` + hidden + `"}}]}`,
		"an URL":                "dial postgres://app:" + hidden + "@db:5432/shop",
		"an URL in JSON":        `{"args":["--db=postgres://app:` + hidden + `@db/x"]}`,
		"a flag":                "moonsail\x00serve\x00--password=" + hidden + "\x00",
		"a flag in JSON":        `{"args":["--api-token=` + hidden + `"]}`,
		"YAML":                  "metadata:\n  db-password: " + hidden + "\n  other: 1\n",
		"YAML, quoted":          `password: "` + hidden + ` with spaces"`,
		"a kubeconfig":          "users:\n- user:\n    token: " + hidden + "\n    client-key-data: " + encodedKey + "\n",
		"a log line":            `level=INFO msg="started" api_key=` + hidden + ` x=1`,
		"a key of AWS":          "used AKIAIOSFODNN7EXAMPLE for it",
		"a token of GitHub":     "remote ghp_0123456789abcdefghij0123456789abcdef",
		"not quite JSON":        `{"password": "` + hidden + `"`,
		"JSON lines":            `{"password":"` + hidden + `"}` + "\n" + `{"a":1}`,
		"a list of tokens":      `{"tokens":["` + hidden + `"]}`,
		"metrics":               `x{password="` + hidden + `"} 1`,
		"MeshConfig's header":   configMap("headers:\n- name: authorization\n  value: \"ApiKey " + hidden + "\"\n"),
		"any tracing header":    configMap("extensionProviders:\n- opentelemetry:\n    http:\n      headers:\n      - name: x-team\n        value: " + hidden + "\n"),
		"value before name":     configMap("headers:\n- value: " + hidden + "\n  name: api-key\n"),
		"YAML in braces":        configMap("{headers: [{name: api-key, value: " + hidden + "}]}"),
		"YAML, second part":     configMap("a: 1\n---\nheaders:\n- name: api-key\n  value: " + hidden + "\n"),
		"a Secret in YAML":      configMap("kind: Secret\nstringData:\n  any: " + hidden + "\n"),
		"YAML in YAML":          configMap("template: |\n  env:\n  - name: DB_PASS\n    value: " + hidden + "\n"),
		"a template of YAML":    configMap("{{ if .x }}\nenv:\n- name: DB_PASS\n  value: " + hidden + " and more\n- key: 'api-key'\n  value: '" + hidden + "'\n{{ end }}"),
		"code":                  configMap("h:headers():add(\"authorization\", \"ApiKey " + hidden + "\")\nset( 'x-api-key', '" + hidden + "')"),
		"a table in code":       configMap("request({[\":method\"]=\"GET\", [\"authorization\"] = \"ApiKey " + hidden + "\"})"),
		"another scheme":        "> Authorization: ApiKey " + hidden + "\n> cookie: a=1; b=" + hidden,
		"Envoy's log":           "[C1][S2] request headers complete:\n':path', '/'\n'authorization', 'ApiKey " + hidden + "'\n'cookie', 'a=1; b=" + hidden + "'\n",
		"a tracer's header":     `{"request_headers_to_add":[{"header":{"key":"x-team","value":"` + shaped + `"}}]}`,
		"any tracer's header":   `{"http_service":{"request_headers_to_add":[{"header":{"key":"x-team","value":"` + hidden + `"}}]}}`,
		"a tracer's metadata":   `{"grpcService":{"initialMetadata":[{"key":"x-team","value":"` + hidden + `"}]}}`,
		"YAML, other separator": configMap("a: 1\n--- # second\nheaders:\n- name: x-team\n  value: " + hidden + "\n"),
		"YAML of Windows":       configMap("a: 1\r\n---\r\nheaders:\r\n- name: x-team\r\n  value: " + hidden + "\r\n"),
	}
	var items []Item
	for name, doc := range docs {
		items = append(items, Item{Name: name, Read: text(doc)})
	}
	items = append(items, Item{Name: "an error", Read: func(context.Context) ([]byte, error) {
		return nil, errors.New("GET https://u:" + hidden + "@host: no, with Bearer " + jwt)
	}})
	m, files := write(t, items, options())
	for name, got := range files {
		for _, s := range []string{hidden, encodedSecret, keyLine, encodedKey, jwt, shaped, hexKey, "AKIAIOSFODNN7EXAMPLE", "ghp_0123456789"} {
			require.NotContains(t, got, s, name)
		}
	}
	for _, f := range m.Files {
		require.True(t, f.Redacted > 0 || f.Error != "", "%s: reports that values were removed", f.Name)
	}
	require.Contains(t, files["report/a variable"], "/bin")
	require.Contains(t, files["report/envoy's inline key"], "public")
	require.Contains(t, files["report/a Secret"], `"name": "db"`)
	require.Contains(t, files["report/YAML"], "other: 1")
	require.Contains(t, files["report/any tracing header"], "name: x-team")
	require.Contains(t, files["report/code"], "h:headers():add")
	require.Contains(t, files["report/a template of YAML"], "{{ end }}")
	require.Contains(t, files["report/Envoy's log"], "':path', '/'")
}

// TestOtherTextStays checks that names of secrets and numbers about them stay in the report.
func TestOtherTextStays(t *testing.T) {
	for _, doc := range []string{
		`{"secretName":"ingress-cert","tokenFile":"/var/run/token","credentialName":"shop-cert"}`,
		`{"tls_certificate_sds_secret_configs":[{"name":"default","sds_config":{"resource_api_version":"V3"}}]}`,
		`{"automountServiceAccountToken":true,"privateKeyMode":"x"}`,
		`{"valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}`,
		`{"key":{"kind":"Service","namespace":"shop","name":"token-service"}}`,
		`{"revision":42,"objects":["Service/shop/secret-santa"]}`,
		"# HELP envoy_sds_secret_update_total of secrets\nenvoy_secret_total 5\n",
		"--token-file=/var/run/token --http-token-file /x",
		"moonsail serve --http-key /tls/key.pem --webhook-key=/tls/key.pem --xds-addr :15012",
		`{"env":[{"name":"PWD","value":"/app"},{"name":"TLS_KEY","value":"/tls/key.pem"},{"name":"HOSTNAME","value":"web-7d9c5b8f6d-x2x4z"}]}`,
		`{"args":["serve","--http-key","/tls/key.pem","--key-file=x","--domain=cluster.local","outbound|80||web.shop.svc.cluster.local"]}`,
		`level=INFO msg=applied key=VirtualService/shop/web sort_key=name`,
		`{"image":"registry.example.com/moonsail@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}`,
		configMap("# a comment\nrootNamespace: istio-system\ndefaultConfig: {tracing: {}}\nextensionProviders:\n- name: jaeger\n  zipkin:\n    port: 9411\n"),
		"[C1] headers:\n':path', '/token'\n'x-request-id', '9f6f3b0e-93a3-4e5c'\n",
		`{"cert":"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}`,
	} {
		var r redactor
		got := r.text([]byte(doc))
		require.Zero(t, r.count, string(got))
		require.NotContains(t, string(got), redacted)
	}
}

// TestProfilesAreUnchanged checks that binary files are unchanged.
func TestProfilesAreUnchanged(t *testing.T) {
	profile := "\x1f\x8b password=x"
	_, files := write(t, []Item{{Name: "heap", Binary: true, Read: text(profile)}}, options())
	require.Equal(t, profile, files["report/heap"])
}

// TestManifestListsWhatIsMissing covers what cannot be read, what was cut and what did not fit.
func TestManifestListsWhatIsMissing(t *testing.T) {
	o := options()
	o.MaxFile, o.MaxTotal = 10, 15
	o.Timeout = time.Nanosecond
	var seen []string
	o.Progress = func(_, all int, name string) { require.Equal(t, 5, all); seen = append(seen, name) }
	m, files := write(t, []Item{
		{Name: "a", About: "long", Read: text(strings.Repeat("x", 11))},
		{Name: "b", Read: func(context.Context) ([]byte, error) { return nil, errors.New("no such page") }},
		{Name: "c", Read: func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }},
		{Name: "d", Read: text(strings.Repeat("y", 9))},
		{Name: "e", Read: text("z")},
	}, o)
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, seen)
	require.Equal(t, []File{
		{Name: "a", About: "long", Bytes: 10, Cut: true}, {Name: "b", Error: "no such page"}, {Name: "c", Error: "context deadline exceeded"},
		{Name: "d", Bytes: 5, Cut: true}, {Name: "e", Error: "left out: the report has 15 bytes"},
	}, m.Files)
	require.Equal(t, 3, m.Failed)
	require.Equal(t, 15, m.Bytes)
	var told Manifest
	require.NoError(t, json.Unmarshal([]byte(files["report/manifest.json"]), &told))
	require.Equal(t, *m, told)
	require.Len(t, files, 3)
}

// TestSecretsOfEnvoy checks that names and certificates stay of Envoy's secrets, and nothing else.
func TestSecretsOfEnvoy(t *testing.T) {
	const envoySecret = `"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"`
	certificate := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nTUlJQg==\n-----END CERTIFICATE-----\n"))
	both := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nTUlJQg==\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nTUlJQg==\n-----END PRIVATE KEY-----\n"))
	for name, c := range map[string]struct {
		text    string
		removed int
		kept    []string
	}{
		"certificate and key": {`{"secret": {` + envoySecret + `, "name": "default", "tls_certificate": {"certificate_chain": {"inline_bytes": "` + certificate +
			`"}, "private_key": {"inline_bytes": "c2VjcmV0"}}}}`, 1, []string{"v3.Secret", `"default"`, certificate}},
		"root":            {`{"secret": {` + envoySecret + `, "name": "ROOTCA", "validation_context": {"trusted_ca": {"inline_bytes": "` + certificate + `"}}}}`, 0, []string{"ROOTCA", certificate}},
		"key in the root": {`{"secret": {` + envoySecret + `, "name": "ROOTCA", "validation_context": {"trusted_ca": {"inline_bytes": "` + both + `"}}}}`, 1, []string{"ROOTCA"}},
		"generic secret":  {`{"secret": {` + envoySecret + `, "name": "token", "generic_secret": {"secret": {"inline_string": "` + certificate + `"}}}}`, 1, []string{`"token"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var r redactor
			got := string(r.text([]byte(c.text)))
			require.Equal(t, c.removed, r.count, got)
			for _, k := range c.kept {
				require.Contains(t, got, k)
			}
		})
	}
}

// TestEmptyFilesAreLeftOut checks that the manifest lists them, and that JSON is written as YAML without its secrets.
func TestEmptyFilesAreLeftOut(t *testing.T) {
	m, files := write(t, []Item{
		{Name: "a", IsEmpty: func(text []byte) bool { return string(text) == "{}" }, Read: text("{}")},
		{Name: "b.yaml", YAML: true, IsEmpty: func([]byte) bool { return false }, Read: text(`{"a": {"password": "hunter2"}}`)},
	}, options())
	require.Equal(t, 1, m.Empty)
	require.Equal(t, File{Name: "a", Empty: true}, m.Files[0])
	require.NotContains(t, files, "report/a")
	require.Equal(t, "a:\n  password: '[redacted]'\n", files["report/b.yaml"])
}
