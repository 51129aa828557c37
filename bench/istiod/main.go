// Command istiod is Istio's control plane as a dependency, so that "make bench-istiod" can measure it and Moonsail in one
// run. It only adds the namespace in which istiod stores its certificates and locks: POD_NAMESPACE, in the cluster of the
// kubeconfig KUBECONFIG_OF_NAMESPACE.
package main

import (
	"context"
	"fmt"
	"os"

	"istio.io/istio/pilot/cmd/pilot-discovery/app"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	err := makeNamespace(os.Getenv("KUBECONFIG_OF_NAMESPACE"), os.Getenv("POD_NAMESPACE"))
	if err == nil {
		err = app.NewRootCommand().Execute()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// makeNamespace creates the namespace if it does not exist. Without a kubeconfig it does nothing.
func makeNamespace(kubeconfig, name string) error {
	if kubeconfig == "" {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = client.CoreV1().Namespaces().Create(context.Background(), ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}
