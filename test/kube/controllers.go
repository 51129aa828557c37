package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	satoken "k8s.io/kubernetes/pkg/serviceaccount"
)

// workers is how many objects of a kind a controller or the kubelet processes at the same time.
const workers = 10

// controllers are the controllers of kube-controller-manager that Deployments, Services, namespaces and service
// accounts need. All run until the context of start ends.
type controllers struct {
	rest     *rest.Config
	client   kubernetes.Interface
	metadata metadata.Interface
	shared   informers.SharedInformerFactory
	started  chan struct{} // is closed when the informers run
	runs     []func(context.Context)
	running  sync.WaitGroup
}

func newControllers(config *rest.Config) (*controllers, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// The metadata client uses another encoding.
	plain := rest.CopyConfig(config)
	plain.ContentConfig = rest.ContentConfig{}
	meta, err := metadata.NewForConfig(plain)
	if err != nil {
		return nil, err
	}
	return &controllers{
		rest: config, client: client, metadata: meta, started: make(chan struct{}),
		shared: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutManagedFields)),
	}, nil
}

// withoutManagedFields drops a field that no controller reads.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func (c *controllers) add(run func(context.Context)) { c.runs = append(c.runs, run) }

// start runs the added controllers, and returns when their informers have the cluster's state.
func (c *controllers) start(ctx context.Context) error {
	for _, run := range c.runs {
		c.running.Go(func() { run(ctx) })
	}
	c.shared.Start(ctx.Done())
	close(c.started)
	for typ, ok := range c.shared.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return errors.Join(ctx.Err(), errors.New("no objects from the API server: "+typ.String()))
		}
	}
	return nil
}

func (c *controllers) wait() {
	c.running.Wait()
	c.shared.Shutdown()
}

// addWorkloads adds the controllers that create Pods and their EndpointSlices.
func (c *controllers) addWorkloads(ctx context.Context) error {
	apps, core, disc := c.shared.Apps().V1(), c.shared.Core().V1(), c.shared.Discovery().V1()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), c.client)
	if err != nil {
		return err
	}
	replicaSets := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), c.client, replicaset.BurstReplicas)
	statefulSets := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), c.client)
	slices := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), disc.EndpointSlices(), 100, c.client, 0)
	mirroring := endpointslicemirroring.NewController(ctx, core.Endpoints(), disc.EndpointSlices(), core.Services(), 1000, c.client, 0)
	for _, run := range []func(context.Context, int){deployments.Run, replicaSets.Run, statefulSets.Run, slices.Run, mirroring.Run} {
		c.add(func(ctx context.Context) { run(ctx, workers) })
	}
	return nil
}

// addNamespaces adds the controllers that fill and empty namespaces.
func (c *controllers) addNamespaces(ctx context.Context) {
	namespaces := namespace.NewNamespaceController(ctx, c.client, c.metadata, c.client.Discovery().ServerPreferredNamespacedResources,
		c.shared.Core().V1().Namespaces(), 5*time.Minute, v1.FinalizerKubernetes)
	c.add(func(ctx context.Context) { namespaces.Run(ctx, workers) })
}

// addServiceAccounts adds the controllers of default service accounts, of tokens in Secrets, of the ConfigMap with the
// cluster's root certificate, and of aggregated roles (view, edit, admin).
func (c *controllers) addServiceAccounts(ctx context.Context, creds credentials) error {
	log, core := klog.FromContext(ctx), c.shared.Core().V1()
	accounts, err := serviceaccount.NewServiceAccountsController(log, core.ServiceAccounts(), core.Namespaces(), c.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	generator, err := tokenGenerator(creds.serviceAccounts.keyFile)
	if err != nil {
		return err
	}
	tokens, err := serviceaccount.NewTokensController(log, core.ServiceAccounts(), core.Secrets(), c.client,
		serviceaccount.TokensControllerOptions{TokenGenerator: generator, RootCA: creds.ca.certPEM})
	if err != nil {
		return err
	}
	roots, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), c.client, creds.ca.certPEM)
	if err != nil {
		return err
	}
	roles := clusterroleaggregation.NewClusterRoleAggregation(c.shared.Rbac().V1().ClusterRoles(), c.client.RbacV1())
	for _, run := range []func(context.Context, int){accounts.Run, tokens.Run, roots.Run, roles.Run} {
		c.add(func(ctx context.Context) { run(ctx, workers) })
	}
	return nil
}

func tokenGenerator(keyFile string) (satoken.TokenGenerator, error) {
	pem, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return nil, err
	}
	return satoken.JWTTokenGenerator(satoken.LegacyIssuer, key)
}

// addGarbageCollector adds the controller that deletes objects whose owners are gone. It looks for new types of objects
// at intervals.
func (c *controllers) addGarbageCollector(ctx context.Context) error {
	const refresh = 30 * time.Second
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	factory := informerfactory.NewInformerFactory(c.shared, metadatainformer.NewSharedInformerFactory(c.metadata, 0))
	ignored := map[schema.GroupResource]struct{}{}
	for r := range garbagecollector.DefaultIgnoredResources() {
		ignored[r] = struct{}{}
	}
	collector, err := garbagecollector.NewGarbageCollector(ctx, c.client, c.metadata, mapper, ignored, factory, c.started)
	if err != nil {
		return err
	}
	c.add(func(ctx context.Context) { wait.Until(mapper.Reset, refresh, ctx.Done()) })
	c.add(func(ctx context.Context) { collector.Run(ctx, workers, refresh) })
	c.add(func(ctx context.Context) { collector.Sync(ctx, c.client.Discovery(), refresh) })
	c.add(func(ctx context.Context) {
		<-c.started
		factory.Start(ctx.Done())
	})
	return nil
}
