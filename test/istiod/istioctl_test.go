package istiod

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
	"github.com/moonsail/moonsail/test/logtext"
)

var istioctlPath = flag.String("istioctl", "", "the istioctl to run; make istioctl-test builds it")

// ofShop is the namespace of the sidecars that istioctl is asked about.
const ofShop = "shop"

// istioctl runs Istio's command line against a control plane of Moonsail.
type istioctl struct {
	*interop
	pod    string // of the control plane
	ip     string // of that Pod
	beside string // address of this host that is not loopback
	files  files
}

// files are arguments of commands.
type files struct {
	certificate string // folder with a certificate of namespace istio-system
	stranger    string // folder with a certificate of another namespace
	client      string // what the client's Envoy answers at /config_dump
	clusters    string // what it answers at /clusters
	endpoints   string // what it answers at /config_dump, with endpoints
	server      string // what the server's Envoy answers at /config_dump
	objects     string
}

const shopObjects = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: server, namespace: shop}
spec:
  hosts: [server]
  http: [{route: [{destination: {host: server, subset: v1}}], retries: {attempts: 2, retryOn: 5xx}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: shop}
spec:
  host: server
  subsets: [{name: v1, labels: {app: server}}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: callers, namespace: shop}
spec:
  selector: {matchLabels: {app: server}}
  rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]
`

// TestIstioctl runs commands of the real istioctl against the control plane of the chart, with a real API server and real
// Envoys. Without --xds-address and --file, istioctl finds Pods by their labels, and reaches them through the API server.
func TestIstioctl(t *testing.T) {
	if *istioctlPath == "" {
		t.Skip("istioctl takes minutes to build: run make istioctl-test")
	}
	x := startIstioctl(t)
	for _, tc := range x.cases(t) {
		t.Run(tc.name, func(t *testing.T) {
			for _, line := range tc.lines {
				out, err := x.run(t, line)
				assert.Equal(t, tc.fails, err != nil, "istioctl %s: %v\n%s", line, err, out)
				for _, want := range tc.want {
					assert.Regexp(t, "(?m)"+want, out, "istioctl %s", line)
				}
			}
		})
	}
}

// istioctlCase are command lines with one result.
type istioctlCase struct {
	name  string
	lines []string
	fails bool
	want  []string // patterns; ^ and $ are the ends of a line
}

func (x *istioctl) cases(t *testing.T) []istioctlCase {
	host, err := os.Hostname() // a Pod's is its name
	require.NoError(t, err)
	istio := regexp.QuoteMeta(version.IstioAPI)
	proxy := func(name string) string {
		return `^` + name + `\.shop +Kubernetes +` + regexp.QuoteMeta(host) + ` +` + istio + ` +5 \(CDS,LDS,EDS,RDS,`
	}
	client, server := regexp.QuoteMeta(x.members["client"].ip), regexp.QuoteMeta(x.members["server"].ip)
	beside := "--xds-address " + net.JoinHostPort(x.beside, "15012")
	plaintext := "--plaintext --xds-address " + net.JoinHostPort(x.ip, "15010")
	withCertificate := beside + " --authority istiod.istio-system.svc --cert-dir "
	return []istioctlCase{
		{"proxies", []string{
			"proxy-status", "ps -n shop", "ps --revision default", "ps --xds-label istio.io/rev=default", "x proxy-status",
			"ps " + beside, "ps " + withCertificate + x.files.certificate, "ps " + plaintext,
		}, false, []string{`^NAME +CLUSTER +ISTIOD +VERSION +SUBSCRIBED TYPES$`, proxy("client"), proxy("server")}},
		{"state of each type", []string{"ps -v 1"}, false, []string{
			`^NAME +CLUSTER +CDS +ECDS +EDS +LDS +RDS +\S+VirtualHost +ISTIOD +VERSION$`, `^client\.shop +Kubernetes +SYNCED +IGNORED +SYNCED +SYNCED +SYNCED +SYNCED `,
		}},
		{"proxies as JSON", []string{"ps -o json"}, false, []string{`"id": "client.shop"`, `"configStatus": "SYNCED"`, `\\"Component\\":\\"istiod\\"`}},
		{"caller of another namespace", []string{"ps " + withCertificate + x.files.stranger}, true, []string{"shop/sa/default may not read the configuration of all proxies"}},
		{"differences of a proxy", []string{"ps client.shop", "ps client -n shop", "ps client.shop --file " + x.files.client, "ps client.shop " + plaintext}, false, []string{
			"^Clusters Match$", "^Listeners Match$", "^Routes Match ",
		}},
		{"differences from another proxy", []string{"ps client.shop --file " + x.files.server}, false, []string{"^Listeners Don't Match$"}},
		{"versions", []string{"version", "x version", "x version " + beside}, false, []string{
			`^control plane version: ` + regexp.QuoteMeta(version.Get().Istio().Version) + `$`, `^data plane version: ` + istio + ` \(2 proxies\)$`,
		}},
		{"versions as JSON", []string{"version -o json"}, false, []string{`"Revision": "default"`, `"ID": "client.shop"`, `"Type": "sidecar"`}},

		{"clusters", []string{"pc cluster client.shop", "pc cluster client.shop --proxy-admin-port 15000", "pc cluster --file " + x.files.client}, false, []string{
			`^ +18080 +- +inbound +STATIC`, `^server\.shop\.svc\.cluster\.local +20080 +v1 +outbound +EDS +server\.shop`,
		}},
		{"listeners", []string{"pc listener client.shop", "pc listener --file " + x.files.client}, false, []string{
			`^` + client + ` +18080 +Trans: tls +Cluster: inbound\|18080\|\|`, `^` + client + ` +20080 +ALL +Route: 20080`,
		}},
		{"routes", []string{"pc route client.shop", "pc route --file " + x.files.client}, false, []string{
			`^20080 +20080/server\.shop\.svc\.cluster\.local:20080 .*server\.shop .* /\* +server\.shop`, `^inbound\|18080\|\| +inbound\|http\|18080 `,
		}},
		{"endpoints", []string{"pc endpoint client.shop", "pc endpoint --file " + x.files.clusters}, false, []string{`^` + server + `:18080 +HEALTHY +OK +outbound\|20080\|v1\|server\.shop\.svc\.cluster\.local`}},
		{"endpoints in the configuration", []string{"pc eds client.shop", "pc eds --file " + x.files.endpoints}, false, []string{`^` + server + `:18080 +HEALTHY .* outbound\|20080\|v1\|server\.shop\.svc\.cluster\.local`}},
		{"secrets", []string{"pc secret client.shop", "pc secret --file " + x.files.client}, false, []string{`^default +Cert Chain +ACTIVE +true `, `^ROOTCA +CA +ACTIVE +true `}},
		{"bootstrap", []string{"pc bootstrap client.shop", "pc bootstrap --file " + x.files.client}, false, []string{`"id": "sidecar~` + client + `~client\.shop~shop\.svc\.cluster\.local"`}},
		{"versions of a proxy", []string{"pc bootstrap client.shop -o short"}, false, []string{`^Istio Version: ` + istio + `$`, `^Envoy Version: \d`}},
		{"logs", []string{"pc log client.shop --level rbac:debug"}, false, []string{`^ +rbac: debug$`}},
		{"all of a proxy", []string{"pc all client.shop", "pc all --file " + x.files.client}, false, []string{
			`^cluster/outbound\|20080\|v1\|server\.shop`, `^listener/` + client + `_20080 `, `^route/20080 `, `^secret/default `,
		}},

		{"debug pages", []string{"x internal-debug --list"}, false, []string{`"syncz"`, `"config_dump"`, `"registryz"`}},
		{"a page that does not exist", []string{"x internal-debug nonsense"}, false, []string{"please check all supported internal debug commands", `"syncz"`}},
		{"a page without a proxy", []string{"x internal-debug edsz"}, true, []string{"You must provide a proxyID"}},
		{"syncz", []string{"x internal-debug syncz", "x internal-debug syncz " + beside}, false, []string{`"proxy": "client.shop"`, `"cluster_acked": "\d+"`}},
		{"of all control planes", []string{"x internal-debug syncz --all"}, false, []string{`^  "` + regexp.QuoteMeta(host) + `": \[$`, `"proxy": "client.shop"`}},
		{"connections", []string{"x internal-debug adsz", "x internal-debug connections"}, false, []string{`"totalClients": 2`, `"connectionId": "client\.shop-`}},
		{"config_dump", []string{"x internal-debug config_dump?proxyID=client.shop"}, false, []string{`"name": "outbound\|20080\|v1\|server\.shop`, `RoutesConfigDump`}},
		{"edsz", []string{"x internal-debug edsz?proxyID=client.shop"}, false, []string{`"cluster_name": "outbound\|20080\|v1\|server\.shop`, `"address": "` + server}},
		{"ndsz", []string{"x internal-debug ndsz?proxyID=client.shop"}, false, []string{`"table":`}},
		{"registryz", []string{"x internal-debug registryz"}, false, []string{`"hostname": "server\.shop\.svc\.cluster\.local"`}},
		{"endpointz", []string{"x internal-debug endpointz", "x internal-debug endpointShardz"}, false, []string{`server\.shop\.svc\.cluster\.local`, server}},
		{"instancesz", []string{"x internal-debug instancesz"}, false, []string{`"client\.shop":`, `"hostname": "server\.shop\.svc\.cluster\.local"`}},
		{"configz", []string{"x internal-debug configz"}, false, []string{`"kind": "VirtualService"`, `"subset": "v1"`}},
		{"resourcesz", []string{"x internal-debug resourcesz"}, false, []string{`"kind": "VirtualService"`}},
		{"mesh", []string{"x internal-debug mesh"}, false, []string{`"accessLogFile": "/dev/stdout"`}},
		{"clusters that are read", []string{"remote-clusters"}, false, []string{`^Kubernetes +synced +` + x.pod + ` +default$`}},

		{"a Pod", []string{"x describe pod server.shop"}, false, []string{
			`^   Pod Revision: default$`, `^Service: server\.shop$`, `^   Matching subsets: v1$`, `^VirtualService: server\.shop$`, `^Effective PeerAuthentication:$`, `^   Workload mTLS mode: STRICT$`,
		}},
		{"a Service", []string{"x describe service server.shop"}, false, []string{`^Service: server\.shop$`, `^DestinationRule: server\.shop for "server"$`, `^VirtualService: server\.shop$`}},
		{"policies of a proxy", []string{"x authz check server.shop"}, false, []string{`^ALLOW +callers\.shop +1$`}},
		{"statistics", []string{"x envoy-stats client.shop"}, false, []string{`^cluster_manager\.cds\.version_text: `}},
		{"precheck", []string{"x precheck"}, false, []string{"No issues found when checking the cluster"}},
		{"tags", []string{"tag list"}, false, []string{`^prod +default`}},

		// docs/migrate-from-istio.md lists these as what does not work.
		{"no ControlZ", []string{"admin log"}, true, []string{"connection refused"}},
		{"no webhooks of Istio", []string{"x check-inject server.shop", "x injector list"}, false, []string{"(?i)no Istio injection hooks present"}},
		{"no configuration of Istio's injector", []string{"kube-inject -f " + x.files.objects}, true, []string{"istio-sidecar-injector"}},
		// It decodes the bytes of the roots twice, also those of Istio's agent.
		{"comparison of roots", []string{"pc rootca-compare client.shop server.shop"}, true, []string{"illegal base64 data"}},
	}
}

// startIstioctl runs a control plane of Moonsail as its chart does, and two sidecars.
func startIstioctl(t *testing.T) *istioctl {
	t.Helper()
	x := &istioctl{interop: &interop{
		t: t, c: kubetest.Start(t, "--pod-cidr=127.79.0.0/16", "--service-cidr=127.80.0.0/16"), secure: map[string]string{}, members: map[string]*member{},
	}}
	dir := x.authority()
	x.root = filepath.Join(dir, ca.RootFile)
	forwardPorts(t, x.c)
	x.controlPlane()
	x.beside = besideLoopback(t)
	x.secure[ofShop] = net.JoinHostPort(x.ip, "15012")
	x.c.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}")
	x.c.Apply(t, "", shopObjects)
	for i, name := range []string{"client", "server"} {
		m := &member{name: name, ns: ofShop, ip: fmt.Sprintf("127.79.255.%d", i+1)}
		m.peer.Store("")
		x.c.Apply(t, "", x.injected(m.documents()))
		m.application(t)
		x.members[name] = m
	}
	for _, m := range x.members {
		x.sidecar(m)
	}
	x.write(dir)
	return x
}

// self is the command line of moonsail.
func (x *istioctl) self(args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(x.t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), labtest.AsMoonsail)
	return cmd
}

// injected adds sidecars to Pods.
func (x *istioctl) injected(documents string) string {
	cmd := x.self("inject", "--image", "moonsail", "-f", "-")
	cmd.Stdin = strings.NewReader(documents)
	out, err := cmd.Output()
	require.NoError(x.t, err)
	return string(out)
}

// controlPlane applies what `moonsail manifest` prints, and runs the container of its Pod.
func (x *istioctl) controlPlane() {
	t := x.t
	text, err := deploy.Manifest(deploy.Options{
		Image: "moonsail", Replicas: 1, Revision: model.DefaultRevision,
		// istioctl reads the ConfigMap istio, which the chart writes for a mesh configuration.
		Values: map[string]any{"meshConfig": map[string]any{"accessLogFile": "/dev/stdout"}, "revisionTags": []any{"prod"}},
	})
	require.NoError(t, err)
	// Nothing serves the webhooks: the API server would call their Service.
	x.c.Apply(t, "", strings.ReplaceAll(string(text), "failurePolicy: Fail", "failurePolicy: Ignore"))
	var args []string
	var account string
	injection := filepath.Join(t.TempDir(), "config")
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(doc), &kind))
		switch kind.Kind {
		case "Deployment":
			var d appsv1.Deployment
			require.NoError(t, yaml.Unmarshal([]byte(doc), &d))
			args, account = d.Spec.Template.Spec.Containers[0].Args, d.Spec.Template.Spec.ServiceAccountName
		case "ConfigMap":
			var m corev1.ConfigMap
			require.NoError(t, yaml.Unmarshal([]byte(doc), &m))
			if m.Name == "moonsail-injection" {
				require.NoError(t, os.WriteFile(injection, []byte(m.Data["config"]), 0o600))
			}
		}
	}
	for i := range args {
		args[i] = strings.Replace(args[i], "/etc/moonsail/injection/config", injection, 1)
	}
	x.c.Eventually(t, "the control plane's Pod runs", func(ctx context.Context) error {
		pods, err := x.c.Client.CoreV1().Pods(rootNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d Pods, or they do not run", len(pods.Items))
		}
		x.pod, x.ip = pods.Items[0].Name, pods.Items[0].Status.PodIP
		return nil
	})

	cmd := x.self(append(args, "--xds-plaintext-addr", net.JoinHostPort(x.ip, "15010"), "--kubeconfig", x.c.KubeconfigAs(t, rootNamespace, account))...)
	cmd.Env = append(cmd.Env, "POD_NAME="+x.pod, "POD_IP="+x.ip)
	var log logtext.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		await.From(t, ended)                    //nolint:errcheck // it was told to end
		if t.Failed() {
			t.Logf("Moonsail's log:\n%s", &log)
		}
	})
	x.c.Eventually(t, "the control plane is ready", func(ctx context.Context) error {
		status, body, err := get(ctx, "http://"+x.ip+":15014/ready")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return err
	})
}

// besideLoopback returns an address of this host that is not a loopback address. In the network namespace of tests it adds one.
func besideLoopback(t *testing.T) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	const added = "192.0.2.1" // for documentation
	out, err := exec.CommandContext(t.Context(), "ip", "address", "add", added+"/32", "dev", "lo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return added
}

// write writes the files.
func (x *istioctl) write(authority string) {
	t := x.t
	pair, err := tls.LoadX509KeyPair(filepath.Join(authority, ca.CertFile), filepath.Join(authority, ca.KeyFile))
	require.NoError(t, err)
	x.files.certificate, x.files.stranger = x.certificate(&pair, rootNamespace), x.certificate(&pair, ofShop)
	x.files.client, x.files.clusters = x.page("client", "config_dump"), x.page("client", "clusters?format=json")
	x.files.endpoints, x.files.server = x.page("client", "config_dump?include_eds=true"), x.page("server", "config_dump")
	x.files.objects = filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(x.files.objects, []byte(shopObjects), 0o600))
}

// page writes what the admin interface of a sidecar's Envoy answers.
func (x *istioctl) page(name, path string) string {
	t := x.t
	status, text, err := get(t.Context(), "http://"+net.JoinHostPort(x.members[name].ip, "15000")+"/"+path)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	file := filepath.Join(t.TempDir(), "page.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// get makes a request with a separate connection.
func get(ctx context.Context, url string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	req.Close = true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// certificate returns a folder with a certificate of a namespace, as --cert-dir takes it.
func (x *istioctl) certificate(authority *tls.Certificate, ns string) string {
	t, dir := x.t, x.t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	id, err := url.Parse(model.Identity{TrustDomain: model.DefaultTrustDomain, Namespace: ns, ServiceAccount: "default"}.String())
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{id}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, authority.Leaf, key.Public(), authority.PrivateKey)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	root, err := os.ReadFile(x.root)
	require.NoError(t, err)
	for name, text := range map[string][]byte{
		"cert-chain.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"key.pem":        pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"root-cert.pem":  root,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

// run runs istioctl, and returns what it prints.
func (x *istioctl) run(t *testing.T, args string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t), *istioctlPath, strings.Fields(args)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+x.c.Kubeconfig(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}
