package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
)

// installCRDs applies the CustomResourceDefinitions of a folder, and waits until their objects are accepted.
func installCRDs(ctx context.Context, config *rest.Config, dir string) error {
	if dir == "" {
		return nil
	}
	crds, err := readCRDs(dir)
	if err != nil {
		return err
	}
	plain := rest.CopyConfig(config)
	plain.ContentConfig = rest.ContentConfig{}
	client, err := apiextensions.NewForConfig(plain)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := installCRD(ctx, client.CustomResourceDefinitions(), crd); err != nil {
			return fmt.Errorf("install %s: %w", crd.Name, err)
		}
	}
	return waitEstablished(ctx, client.CustomResourceDefinitions(), crds)
}

func readCRDs(dir string) (crds []*apiextensionsv1.CustomResourceDefinition, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no YAML files with CustomResourceDefinitions", dir)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if crds, err = decodeCRDs(crds, b); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return crds, nil
}

// decodeCRDs appends those of one file. It skips objects of other kinds.
func decodeCRDs(crds []*apiextensionsv1.CustomResourceDefinition, b []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096)
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		switch err := dec.Decode(crd); {
		case errors.Is(err, io.EOF):
			return crds, nil
		case err != nil:
			return crds, err
		case crd.Kind == "CustomResourceDefinition":
			crds = append(crds, crd)
		}
	}
}

func installCRD(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, crd *apiextensionsv1.CustomResourceDefinition) error {
	_, err := client.Create(ctx, crd, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	old, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	changed := crd.DeepCopy()
	changed.ResourceVersion = old.ResourceVersion
	_, err = client.Update(ctx, changed, metav1.UpdateOptions{}) // writes nothing if nothing differs
	return err
}

func waitEstablished(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, crds []*apiextensionsv1.CustomResourceDefinition) error {
	var waiting []string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		waiting = waiting[:0]
		for _, crd := range crds {
			if !slices.ContainsFunc(list.Items, func(c apiextensionsv1.CustomResourceDefinition) bool { return c.Name == crd.Name && established(c) }) {
				waiting = append(waiting, crd.Name)
			}
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("custom resources %v are not served: %w", waiting, err)
	}
	return nil
}

func established(crd apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}
