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

// state is the folder that outlives the process: etcd's data and the credentials. The next process continues with it,
// however the last one ended.
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

// openLog writes the logs of all parts to one file, to keep them off the terminal.
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

// close removes what is useless afterwards.
func (st *state) close() {
	klog.Flush()
	if !st.temporary || st.dir == "" {
		return
	}
	if err := errors.Join(os.RemoveAll(st.dir), os.RemoveAll(st.kubeconfig)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
}

// writeKubeconfig writes a kubeconfig with an administrator's rights, in one step.
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
