package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// issuer names the cluster in service accounts' tokens, and is their default audience.
const issuer = "https://kubernetes.default.svc.cluster.local"

// apiServer is the running API server.
type apiServer struct {
	addr  string
	ended chan error // receives the reason when the server has ended, and is closed
}

func (s *apiServer) url() string { return "https://" + s.addr }

// flags returns the flags of kube-apiserver: locations, and settings that make it start faster on one machine.
func flags(c config, st *state, port int, etcd string) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--event-ttl=10m",
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		// The kubernetes Service has no endpoints: no pod of this cluster uses it.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + c.serviceCIDR,
		"--allow-privileged=true",

		"--tls-cert-file=" + st.serving.certFile,
		"--tls-private-key-file=" + st.serving.keyFile,
		"--client-ca-file=" + st.ca.certFile,
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + st.serviceAccounts.certFile,
		"--service-account-signing-key-file=" + st.serviceAccounts.keyFile,

		// All other plugins that are on by default stay on, including those for webhooks. The taint would keep pods off
		// new nodes until the node lifecycle controller removes it, which does not run here.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--enable-admission-plugins=MutatingAdmissionWebhook,ValidatingAdmissionWebhook",

		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=0",
		"--max-mutating-requests-inflight=0",
	}
}

// startAPIServer serves on a port of loopback until the context ends.
func startAPIServer(ctx context.Context, c config, st *state, etcd string) (*apiServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	s := &apiServer{addr: listener.Addr().String(), ended: make(chan error, 1)}
	opts, err := complete(ctx, listener, flags(c, st, port, etcd))
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server, err := build(opts)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	go func() {
		defer close(s.ended)
		if err := prepared.Run(ctx); err != nil {
			s.ended <- err
		} else {
			s.ended <- errors.New("it has ended without an error")
		}
	}()
	return s, nil
}

func complete(ctx context.Context, listener net.Listener, args []string) (options.CompletedOptions, error) {
	opts := options.NewServerRunOptions()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, named := range opts.Flags().FlagSets {
		fs.AddFlagSet(named)
	}
	if err := fs.Parse(args); err != nil {
		return options.CompletedOptions{}, err
	}
	opts.SecureServing.Listener = listener
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return options.CompletedOptions{}, err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	done, err := opts.Complete(ctx)
	if err != nil {
		return done, err
	}
	return done, utilerrors.NewAggregate(done.Validate())
}

// waitReady waits until the server reports that it is ready.
func (s *apiServer) waitReady(ctx context.Context, client kubernetes.Interface) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-s.ended:
			return false, fmt.Errorf("the API server has ended: %w", err)
		default:
		}
		last = client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, nil
	})
	return errors.Join(err, last)
}
