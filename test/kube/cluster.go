package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// lastWait is how long the parts may take to end in order. What they have written is safe however they end.
const lastWait = 5 * time.Second

// cluster has the running parts, in the order in which they are started.
type cluster struct {
	config
	state       *state
	etcd        *embed.Etcd
	api         *apiServer
	controllers *controllers

	cancelAPI, cancelControllers context.CancelFunc
}

// start returns when pods can be created and custom resources are served. The parts run until stop, not until the
// context ends, so that they end in order.
func (k *cluster) start(ctx context.Context) (err error) {
	if k.etcd, err = startEtcd(ctx, k.state); err != nil {
		return err
	}
	apiCtx, cancelAPI := context.WithCancel(context.WithoutCancel(ctx))
	k.cancelAPI = cancelAPI
	if k.api, err = startAPIServer(apiCtx, k.config, k.state, "http://"+k.etcd.Clients[0].Addr().String()); err != nil {
		return err
	}
	if k.controllers, err = newControllers(k.clientConfig()); err != nil {
		return err
	}
	if err := k.api.waitReady(ctx, k.controllers.client); err != nil {
		return err
	}
	if err := installCRDs(ctx, k.clientConfig(), k.crds); err != nil {
		return err
	}
	if err := makeNodes(ctx, k.controllers.client, k.nodes); err != nil {
		return err
	}
	if err := makeNamespaces(ctx, k.controllers.client, k.namespaces); err != nil {
		return err
	}
	if err := k.startControllers(ctx); err != nil {
		return err
	}
	return k.state.writeKubeconfig(k.api.url())
}

// clientConfig configures the parts that are clients of the API server: administrators without a rate limit.
func (k *cluster) clientConfig() *rest.Config {
	return &rest.Config{
		Host: k.api.addr,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: k.state.ca.certPEM, CertData: k.state.admin.certPEM, KeyData: k.state.admin.keyPEM,
		},
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"},
		QPS:           -1,
	}
}

func (k *cluster) startControllers(ctx context.Context) error {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.cancelControllers = cancel
	c := k.controllers
	if err := c.addWorkloads(own); err != nil {
		return err
	}
	c.addNamespaces(own)
	if err := c.addServiceAccounts(own, k.state.credentials); err != nil {
		return err
	}
	if err := c.addGarbageCollector(own); err != nil {
		return err
	}
	kubelet, err := newKubelet(k.config, c.client, c.shared)
	if err != nil {
		return err
	}
	if err := c.start(own); err != nil {
		return err
	}
	c.running.Go(func() { kubelet.run(own) })
	for _, ns := range append([]string{"default"}, k.namespaces...) {
		if err := waitServiceAccount(ctx, c.client, ns); err != nil {
			return err
		}
	}
	return nil
}

// waitServiceAccount waits until pods can be created in a namespace.
func waitServiceAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("no default service account in namespace %s: %w", namespace, err)
	}
	return nil
}

// stop ends the started parts in reverse order.
func (k *cluster) stop() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if k.cancelControllers != nil {
			k.cancelControllers()
			k.controllers.wait()
		}
		if k.api != nil {
			k.cancelAPI()
			for range k.api.ended { // until it is closed
			}
		}
		if k.etcd != nil {
			k.etcd.Close()
		}
	}()
	select {
	case <-done:
	case <-time.After(lastWait):
	}
}
