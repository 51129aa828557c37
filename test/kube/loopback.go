package main

import (
	"context"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/kubernetes"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	"k8s.io/kubernetes/pkg/controlplane/controller/kubernetesservice"
	endpointslicestorage "k8s.io/kubernetes/pkg/registry/discovery/endpointslice/storage"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
)

// This file joins the three API servers (Kubernetes' types, custom resources, the aggregator) as kube-apiserver's
// app.CreateServerChain and controlplane.New do, with one difference: EndpointSlices may contain loopback addresses.
// Real sidecars can therefore run for the pods of this cluster, each on a separate address, without root.

func build(opts options.CompletedOptions) (*aggregatorapiserver.APIAggregator, error) {
	config, err := app.NewConfig(opts)
	if err != nil {
		return nil, err
	}
	completed, err := config.Complete()
	if err != nil {
		return nil, err
	}
	notFound := notfoundhandler.New(completed.KubeAPIs.ControlPlane.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := completed.ApiExtensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, err
	}
	kube, err := kubeAPIs(completed.KubeAPIs, extensions.GenericAPIServer)
	if err != nil {
		return nil, err
	}
	crds := completed.ApiExtensions.GenericConfig.MergedResourceConfig.ResourceEnabled(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	return controlplaneapiserver.CreateAggregatorServer(completed.Aggregator, kube.GenericAPIServer,
		extensions.Informers.Apiextensions().V1().CustomResourceDefinitions(), crds, priorities())
}

// kubeAPIs serves Kubernetes' own types.
func kubeAPIs(c controlplane.CompletedConfig, next genericapiserver.DelegationTarget) (*controlplaneapiserver.Server, error) {
	server, err := c.ControlPlane.New(controlplaneapiserver.KubeAPIServer, next)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.ControlPlane.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	providers, err := c.StorageProviders(client)
	if err != nil {
		return nil, err
	}
	for i, p := range providers {
		if _, ok := p.(discoveryrest.StorageProvider); ok {
			providers[i] = discoveryStorage{p}
		}
	}
	if err := server.InstallAPIs(providers...); err != nil {
		return nil, err
	}
	return server, addServiceHooks(c, server.GenericAPIServer, client)
}

// addServiceHooks adds hooks that create the kubernetes Service and the range of services' addresses.
func addServiceHooks(c controlplane.CompletedConfig, server *genericapiserver.GenericAPIServer, client *kubernetes.Clientset) error {
	_, port, err := c.ControlPlane.Generic.SecureServing.HostPort()
	if err != nil {
		return err
	}
	service := kubernetesservice.New(kubernetesservice.Config{
		PublicIP:           c.ControlPlane.Generic.PublicAddress,
		EndpointReconciler: c.Extra.EndpointReconcilerConfig.Reconciler,
		EndpointInterval:   c.Extra.EndpointReconcilerConfig.Interval,
		ServiceIP:          c.Extra.APIServerServiceIP,
		ServicePort:        c.Extra.APIServerServicePort,
		PublicServicePort:  port,
	}, client, c.ControlPlane.Extra.VersionedInformers.Core().V1().Services())
	server.AddPostStartHookOrDie("bootstrap-controller", func(ctx genericapiserver.PostStartHookContext) error {
		service.Start(ctx.Done())
		return nil
	})
	server.AddPreShutdownHookOrDie("stop-kubernetes-service-controller", func() error {
		service.Stop()
		return nil
	})
	server.AddPostStartHookOrDie("start-kubernetes-service-cidr-controller", func(ctx genericapiserver.PostStartHookContext) error {
		defaultservicecidr.NewController(c.Extra.ServiceIPRange, c.Extra.SecondaryServiceIPRange, client).Start(ctx)
		return nil
	})
	return nil
}

// priorities orders API groups in discovery. kube-apiserver's list is not exported. This one has the same groups, and
// those that names without a group usually mean come first.
func priorities() map[schema.GroupVersion]controlplaneapiserver.APIServicePriority {
	all := controlplaneapiserver.DefaultGenericAPIServicePriorities()
	groups := []string{"", "apps", "autoscaling", "batch", "networking.k8s.io", "policy"}
	version := int32(100)
	for _, gv := range legacyscheme.Scheme.PrioritizedVersionsAllGroups() {
		version-- // a group's versions come in its order of preference
		if _, ok := all[gv]; ok || gv.Version == runtime.APIVersionInternal {
			continue
		}
		order := slices.Index(groups, gv.Group)
		if order < 0 {
			order = len(groups)
		}
		all[gv] = controlplaneapiserver.APIServicePriority{Group: 18000 - int32(order)*100, Version: max(version, 1)}
	}
	return all
}

// discoveryStorage is the storage of discovery.k8s.io without one validation rule.
type discoveryStorage struct {
	controlplaneapiserver.RESTStorageProvider
}

func (d discoveryStorage) NewRESTStorage(config serverstorage.APIResourceConfigSource, opts generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	group, err := d.RESTStorageProvider.NewRESTStorage(config, opts)
	if err != nil {
		return group, err
	}
	slices := group.VersionedResourcesStorageMap["v1"]["endpointslices"].(*endpointslicestorage.REST)
	slices.CreateStrategy = loopbackAllowed{slices.CreateStrategy.(rest.RESTCreateUpdateStrategy)}
	slices.UpdateStrategy = loopbackAllowed{slices.UpdateStrategy.(rest.RESTCreateUpdateStrategy)}
	return group, nil
}

type loopbackAllowed struct{ rest.RESTCreateUpdateStrategy }

func (s loopbackAllowed) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return withoutLoopback(s.RESTCreateUpdateStrategy.Validate(ctx, obj))
}

func (s loopbackAllowed) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return withoutLoopback(s.RESTCreateUpdateStrategy.ValidateUpdate(ctx, obj, old))
}

func withoutLoopback(errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return strings.Contains(err.Detail, "may not be in the loopback range")
	})
}
