package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// Pod is what commands need to know about a Pod.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Running         bool // and not ending
	Ready           bool
	Containers      []Container
}

// Container is a container of a Pod.
type Container struct {
	Name  string
	Args  []string
	Ports map[string]int32 // by name
}

// Pods lists the Pods of a namespace.
func (c *Client) Pods(ctx context.Context, namespace string) ([]Pod, error) {
	client, err := c.restOf(corev1.SchemeGroupVersion, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := client.Get().Namespace(namespace).Resource("pods").Do(ctx).Into(&list); err != nil {
		return nil, err
	}
	out := make([]Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, podOf(&list.Items[i]))
	}
	return out, nil
}

// Log returns the last lines of the log of a Pod's container.
func (c *Client) Log(ctx context.Context, namespace, pod, container string, lines int) ([]byte, error) {
	client, err := c.restOf(corev1.SchemeGroupVersion, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return client.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").
		Param("container", container).Param("tailLines", strconv.Itoa(lines)).Do(ctx).Raw()
}

func podOf(p *corev1.Pod) Pod {
	out := Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Running: p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionStatus(metav1.ConditionTrue)
		}
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		ports := map[string]int32{}
		for _, port := range c.Ports {
			ports[port.Name] = port.ContainerPort
		}
		out.Containers = append(out.Containers, Container{Name: c.Name, Args: c.Args, Ports: ports})
	}
	return out
}

// RevisionOfTag returns the revision that a tag points to.
func (c *Client) RevisionOfTag(ctx context.Context, tag string) (string, error) {
	const webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-revision-tag-"
	resp, err := c.get(ctx, webhooks+url.PathEscape(tag), http.Header{"Accept": {"application/json"}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var of metav1.PartialObjectMetadata
	if err := json.NewDecoder(resp.Body).Decode(&of); err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the webhooks of the tag %s cannot be read: %s", tag, resp.Status)
	}
	return of.Labels[model.LabelRevision], nil
}
