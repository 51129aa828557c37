package gatewayapi

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// command returns the command of a Pod; nil: the image is unknown.
func (m *machine) command(ctx context.Context, pod *corev1.Pod) (*exec.Cmd, error) {
	container := &pod.Spec.Containers[0]
	switch {
	case container.Image == routerImage:
		return m.router(ctx, pod)
	case strings.Contains(container.Image, "/echo-basic:"):
		return m.echo(ctx, pod, container)
	}
	return nil, nil
}

// echo runs the suite's backend, with the environment and volumes of its Pod.
func (m *machine) echo(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (*exec.Cmd, error) {
	paths, err := m.volumes(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(m.dir, "echo-basic"), container.Args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, e := range container.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+paths.Replace(valueOf(pod, &e)))
	}
	return cmd, nil
}

// valueOf resolves the reference of an environment variable.
func valueOf(pod *corev1.Pod, e *corev1.EnvVar) string {
	if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
		return e.Value
	}
	switch e.ValueFrom.FieldRef.FieldPath {
	case "metadata.name":
		return pod.Name
	case "metadata.namespace":
		return pod.Namespace
	case "status.podIP":
		return pod.Status.PodIP
	}
	return ""
}

// volumes writes the volumes of a container to folders, and returns the folders by mount path.
func (m *machine) volumes(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (*strings.Replacer, error) {
	var moved []string
	for _, mount := range container.VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if v.Name != mount.Name || v.Secret == nil && v.ConfigMap == nil {
				continue
			}
			dir := filepath.Join(m.work, string(pod.UID), v.Name)
			if err := m.writeVolume(ctx, dir, pod.Namespace, &v); err != nil {
				return nil, err
			}
			moved = append(moved, mount.MountPath, dir)
		}
	}
	return strings.NewReplacer(moved...), nil
}

// writeVolume writes the named items of a Secret or ConfigMap. Either may be created later, which is an error until then.
func (m *machine) writeVolume(ctx context.Context, dir, namespace string, v *corev1.Volume) error {
	files := map[string][]byte{}
	if v.Secret != nil {
		var secret corev1.Secret
		if err := m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v.Secret.SecretName}, &secret); err != nil {
			return err
		}
		for _, item := range v.Secret.Items {
			files[item.Path] = secret.Data[item.Key]
		}
	} else {
		var configMap corev1.ConfigMap
		if err := m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v.ConfigMap.Name}, &configMap); err != nil {
			return err
		}
		for _, item := range v.ConfigMap.Items {
			files[item.Path] = []byte(configMap.Data[item.Key])
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(filepath.Join(dir, path), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// router runs an agent with its Envoy, which authenticates with a token of the Pod's service account.
func (m *machine) router(ctx context.Context, pod *corev1.Pod) (*exec.Cmd, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"istio-ca"}}}
	token, err := m.kube.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(m.work, string(pod.UID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token.Status.Token), 0o600); err != nil {
		return nil, err
	}
	var labels []string
	for k, v := range pod.Labels {
		labels = append(labels, k+"="+v)
	}
	cmd := exec.Command(os.Getenv("MOONSAIL_BIN"), "agent", "--type", "router", "--name", pod.Name, "--namespace", pod.Namespace,
		"--ip", pod.Status.PodIP, "--service-account", pod.Spec.ServiceAccountName, "--labels", strings.Join(labels, ","), "--concurrency", "1",
		"--xds-plaintext=false", "--xds-address", nodeAddress+":15012", "--xds-root-cert", m.rootsFile(),
		"--token-file", file, "--drain-time", "1s", "--leave-timeout", "0")
	cmd.Env = os.Environ()
	return cmd, nil
}
