package agent

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetadataFromEnv(t *testing.T) {
	metadata, labels, err := MetadataFromEnv([]string{
		"PATH=/bin", "ISTIO_META_NETWORK=n1", "ISTIO_META_EMPTY=", "ISTIO_META_A=b=c",
		`ISTIO_METAJSON_ANNOTATIONS={"X":{"y":1}}`, `ISTIO_METAJSON_LABELS={"app":"a"}`,
	})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"NETWORK": "n1", "A": "b=c", "X": map[string]any{"y": 1.0}}, metadata)
	require.Equal(t, map[string]string{"app": "a"}, labels)

	_, _, err = MetadataFromEnv([]string{"ISTIO_METAJSON_LABELS=app"})
	require.ErrorContains(t, err, "ISTIO_METAJSON_LABELS")
}

func TestSourceOfCertificates(t *testing.T) {
	for _, test := range []struct {
		name    string
		given   CA
		environ []string
		want    CA
		err     string
	}{
		{name: "the control plane", environ: []string{"A=b"}},
		{name: "files", environ: []string{"FILE_MOUNTED_CERTS=true", "CA_ADDR=ca:443"}, want: CA{MountedCerts: MountedCertsDir}},
		{name: "no files", environ: []string{"FILE_MOUNTED_CERTS=false"}},
		{name: "empty variable", environ: []string{"FILE_MOUNTED_CERTS="}},
		{name: "neither true nor false", environ: []string{"FILE_MOUNTED_CERTS=yes please"}, err: `environment variable FILE_MOUNTED_CERTS: invalid value "yes please": use true or false`},
		{name: "another CA", environ: []string{"CA_ADDR=istio-csr.cert-manager.svc:443"}, want: CA{Address: "istio-csr.cert-manager.svc:443"}},
		{name: "flags win", given: CA{Address: NoCA}, environ: []string{"CA_ADDR=ca:443", "FILE_MOUNTED_CERTS=true"}, want: CA{Address: NoCA}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.given
			err := got.Complete(test.environ)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestWorkloadSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "spire.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))

	require.Empty(t, workloadSocket(filepath.Join(dir, "socket"), nil), "nothing is mounted")
	require.Equal(t, path, workloadSocket(filepath.Join(dir, "socket"), []string{"WORKLOAD_IDENTITY_SOCKET_FILE=spire.sock"}))
	require.Empty(t, workloadSocket(filepath.Join(dir, "file"), nil), "not a socket")
}

func TestCPULimit(t *testing.T) {
	root := t.TempDir()
	write := func(dir, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "cpu.max"), []byte(text), 0o600))
	}
	write("pods/one/main", "max 100000\n")
	write("pods/one", "150000 100000\n")
	write("pods", "400000 100000\n")
	write("broken", "x")
	require.Equal(t, CPULimit{1.5, filepath.Join(root, "pods/one/cpu.max")}, cgroupLimit(root, "1:cpu:/old\n0::/pods/one/main\n"))
	require.Equal(t, 4.0, cgroupLimit(root, "0::/pods").CPUs)
	require.Zero(t, cgroupLimit(root, "0::/broken"))
	require.Zero(t, cgroupLimit(root, "0::/nowhere"))
	require.Zero(t, cgroupLimit(root, "1:cpu:/pods"), "version 1")
	write("", "50000 100000\n")
	require.Equal(t, 0.5, cgroupLimit(root, "0::/").CPUs)

	got, err := FindCPULimit([]string{"X=1", "ISTIO_CPU_LIMIT=3"})
	require.NoError(t, err)
	require.Equal(t, CPULimit{3, "ISTIO_CPU_LIMIT"}, got)
	for _, bad := range []string{"x", "0", "-1", "NaN", "Inf"} {
		_, err := FindCPULimit([]string{"ISTIO_CPU_LIMIT=" + bad})
		require.ErrorContains(t, err, "ISTIO_CPU_LIMIT", bad)
	}
}
