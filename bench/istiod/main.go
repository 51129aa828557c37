// Command istiod is Istio's control plane as a dependency, so that "make bench-istiod" can
// measure it beside Moonsail in one run. It adds nothing but the namespace that istiod
// keeps its certificates and locks in: environment KUBECONFIG_OF_NAMESPACE names the file
// that tells where, POD_NAMESPACE which.
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

// makeNamespace makes the namespace, unless it is there or nobody asked for it.
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
