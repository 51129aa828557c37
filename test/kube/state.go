package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// state is the folder that outlives the process: etcd's data and the credentials. A
// process that finds them there goes on where the last one was ended, however that was.
type state struct {
	dir        string
	temporary  bool
	kubeconfig string
	log        *os.File
	credentials
}

func openState(c config) (*state, error) {
	st := &state{dir: c.dir, temporary: c.dir == "", kubeconfig: c.kubeconfig}
	err := st.makeDir()
	if err == nil {
		err = st.openLog(c.verbosity)
	}
	if err == nil {
		st.credentials, err = openCredentials(st.path("pki"))
	}
	if err != nil {
		st.close()
		return nil, err
	}
	if st.kubeconfig == "" {
		st.kubeconfig = st.path("kubeconfig")
	}
	return st, nil
}

func (st *state) path(name string) string { return filepath.Join(st.dir, name) }

func (st *state) makeDir() (err error) {
	if st.temporary {
		st.dir, err = os.MkdirTemp("", "kube-")
		return err
	}
	if st.dir, err = filepath.Abs(st.dir); err != nil {
		return err
	}
	return os.MkdirAll(st.dir, 0o700)
}

// openLog sends what the parts log to one file: on the terminal it would be noise.
func (st *state) openLog(verbosity int) (err error) {
	st.log, err = os.OpenFile(st.path("kube.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	for name, value := range map[string]string{
		"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true", "v": strconv.Itoa(verbosity),
	} {
		err = errors.Join(err, fs.Set(name, value))
	}
	klog.SetOutput(st.log)
	return err
}

// close removes what would be of no use afterwards.
func (st *state) close() {
	klog.Flush()
	if !st.temporary || st.dir == "" {
		return
	}
	if err := errors.Join(os.RemoveAll(st.dir), os.RemoveAll(st.kubeconfig)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
}

// writeKubeconfig gives its reader an administrator's rights. It appears whole or not at all.
func (st *state) writeKubeconfig(server string) error {
	kc := clientcmdapi.NewConfig()
	kc.Clusters["moonsail"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: st.ca.certPEM}
	kc.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: st.admin.certPEM, ClientKeyData: st.admin.keyPEM}
	kc.Contexts["moonsail"] = &clientcmdapi.Context{Cluster: "moonsail", AuthInfo: "admin"}
	kc.CurrentContext = "moonsail"
	b, err := clientcmd.Write(*kc)
	if err != nil {
		return err
	}
	tmp := st.kubeconfig + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, st.kubeconfig)
}
