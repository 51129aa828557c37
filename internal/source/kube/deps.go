package kube

import (
	_ "github.com/go-logr/logr"
	_ "k8s.io/api/coordination/v1"
	_ "k8s.io/client-go/discovery"
	_ "k8s.io/client-go/rest"
	_ "k8s.io/client-go/tools/cache"
	_ "k8s.io/client-go/tools/clientcmd"
)
