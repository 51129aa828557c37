// Package cluster runs a real Kubernetes cluster on this machine, from programs that it builds. It needs root and Linux,
// but no container runtime, image registry or init system.
//
// A node is one process tree in network, mount, PID, cgroup, UTS and IPC namespaces. node.sh is its process 1. The root of
// its file system is a tmpfs with the machine's /usr; only the folders of containerd, the kubelet and etcd are on disk.
// So clusters run beside each other with the same addresses, and the machine's network, mounts and sysctls stay as they
// are. If process 1 ends, the kernel ends the node with all of its Pods.
//
//	172.30.0.N/24    node N; node 1 has the bridge, and a cable to each further node
//	10.244.N.0/24    Pods of node N, routed without address translation
//	10.96.0.0/16     Services; 10.96.0.10 is DNS
//
// Nothing outside of the cluster can be reached from it. A forwarder on a loopback port of the machine leads to the API
// server.
//
// Start reading at Start in cluster.go. What is built, and from which versions, is in build.go and go.mod.
package cluster
