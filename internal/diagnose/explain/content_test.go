package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
)

// TestContentIgnoresTheSource checks that an object of a file has the content of the same object in an API server.
func TestContentIgnoresTheSource(t *testing.T) {
	slice := func(source config.Decoder, metadata, pod string) string {
		o, problems := source.FromYAML(fmt.Appendf(nil, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}%s}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.1.1], targetRef: {kind: Pod, name: %s, namespace: shop}}]`, metadata, pod))
		require.NotNil(t, o, problems)
		return Content(o)
	}
	file := slice(config.Decoder{}, "", "web-1")
	require.NotEmpty(t, file)
	stored := `, resourceVersion: "7", creationTimestamp: "2026-01-01T00:00:00Z"`
	require.Equal(t, file, slice(config.Decoder{PodsListed: true}, stored, "web-1"))
	require.NotEqual(t, file, slice(config.Decoder{}, "", "web-2"))
}

// TestInForceIgnoresWhatIsFilledIn checks that an object of a file is in force as an API server and the mesh complete it.
func TestInForceIgnoresWhatIsFilledIn(t *testing.T) {
	read := func(text string) model.Object {
		o, problems := config.Decoder{}.FromYAML([]byte(text))
		require.NotNil(t, o, problems)
		return o
	}
	inForce := func(file string, cluster model.Object) bool {
		return InForce(read(file), &Explanation{Origin: fromKubernetes, Content: Content(cluster)})
	}
	const service = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {type: LoadBalancer, selector: {app: a}, ports: [{name: http, port: 80}]%s}%s}"
	file := fmt.Sprintf(service, "", "")
	require.True(t, inForce(file, read(fmt.Sprintf(service, ", clusterIP: 'fd00::1', ipFamilies: [IPv6]", ", status: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}"))))
	require.False(t, inForce(file, read(fmt.Sprintf(service, ", internalTrafficPolicy: Local", ""))))

	const entry = "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: shop}, spec: {hosts: [a.example.com], resolution: DNS, ports: [{number: %d, name: http, protocol: HTTP}]}%s}"
	file = fmt.Sprintf(entry, 80, "")
	require.True(t, inForce(file, read(fmt.Sprintf(entry, 80, ", status: {addresses: [{host: a.example.com, value: 240.240.0.1}]}"))))
	require.False(t, inForce(file, read(fmt.Sprintf(entry, 81, ""))))

	const secret = "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: shop}, stringData: {tls.crt: certificate, tls.key: key, ca.crt: %s}}"
	file = fmt.Sprintf(secret, "one")
	known := read(file).(*model.Secret)
	known.Readers = []string{"router"}
	require.True(t, inForce(file, known))
	known.Certificate, known.PrivateKey, known.Readers = "", model.PrivateKey{}, []string{}
	require.True(t, inForce(file, known), "no proxy asks for the key")
	known.CA = "another"
	require.False(t, inForce(file, known))

	const login = `{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: shop}, type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: '{"auths": {"r.example.com": {"auth": %q}}}'}}`
	file = fmt.Sprintf(login, "b2xkOm9sZA==")
	require.True(t, inForce(file, read(file)))
	require.False(t, inForce(fmt.Sprintf(login, "bmV3Om5ldw=="), read(file)), "the cluster still has the old password")
	key := func(pem string) string {
		return Content(&model.Secret{Meta: model.Meta{Key: known.Key}, Certificate: "certificate", PrivateKey: model.NewPrivateKey(pem)})
	}
	require.Equal(t, key("one"), key("one"))
	require.NotEqual(t, key("one"), key("two"))
}
