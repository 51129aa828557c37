#!/usr/bin/env bash
# Process 1 of a node, in its namespaces. It builds the root of the node's file system, sets up its network, and runs
# its programs, again whenever one ends. Package cluster sets NODE (name), INDEX (from 1), TOOLS and RUN (folders).
set -euo pipefail
address=172.30.0.$INDEX
state=$RUN/$NODE
root=$state/root

# The root of the file system.
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root"/{usr,etc/cni/net.d,etc/containerd,etc/kubernetes,proc,sys,dev,run,tmp,root,old,tools,cluster} \
  "$root"/var/{lib/containerd,lib/kubelet,lib/etcd,log}
mount -t overlay -o "ro,lowerdir=$TOOLS/usr:/usr" overlay "$root/usr"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
cp -a /etc/passwd /etc/group "$root/etc/"
[ ! -e /etc/ld.so.conf ] || cp -a /etc/ld.so.c* "$root/etc/"
echo "127.0.0.1 localhost $NODE" > "$root/etc/hosts"
: > "$root/etc/resolv.conf" # names outside of the cluster do not resolve
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$root/etc/machine-id"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"

# Hierarchies that are mounted in the cgroup namespace have the node's cgroup as their root.
groups=$root/sys/fs/cgroup
if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then
  mount -t cgroup2 cgroup2 "$groups"
  mkdir "$groups/init" # a group with processes cannot give controllers to groups below it
  echo 1 > "$groups/init/cgroup.procs"
  for controller in $(cat "$groups/cgroup.controllers"); do
    echo "+$controller" > "$groups/cgroup.subtree_control" || true # one that the kubelet needs and lacks is in its log
  done
else
  mount -t tmpfs -o mode=755 tmpfs "$groups"
  for hierarchy in /sys/fs/cgroup/*; do
    name=$(basename "$hierarchy")
    if [ -L "$hierarchy" ]; then # cpu -> cpu,cpuacct
      cp -P "$hierarchy" "$groups/"
      continue
    fi
    mkdir "$groups/$name"
    case $name in
    unified) mount -t cgroup2 cgroup2 "$groups/$name" ;;
    systemd) mount -t cgroup -o none,name=systemd cgroup "$groups/$name" ;;
    *) mount -t cgroup -o "$name" cgroup "$groups/$name" ;;
    esac
  done
fi

# Folders on disk. An overlay's upper layers, which are containerd's snapshots, cannot lie on another overlay.
mount --bind "$state/containerd" "$root/var/lib/containerd"
mount --bind "$state/kubelet" "$root/var/lib/kubelet"
mount --bind "$state/etcd" "$root/var/lib/etcd"
mount --bind "$state/log" "$root/var/log"
mount --bind "$RUN" "$root/cluster"
mount --bind "$TOOLS" "$root/tools"
# The kubelet sets sysctls of the whole machine. It finds the values that it wants in these files, and sets nothing.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=$root/run/sysctl/${setting%=*}
  mkdir -p "$(dirname "$file")"
  echo "${setting#*=}" > "$file"
  mount --bind "$file" "$root/proc/sys/${setting%=*}"
done
cd "$root"
pivot_root . old
cd /
umount -l /old
mount --make-rshared /
export PATH=/tools/bin:/usr/sbin:/usr/bin HOME=/root
echo "$NODE" > /proc/sys/kernel/hostname

# Network. kube-proxy rewrites the address of a Service after the node has found a route, so Services need a route.
echo 1 > /proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/bridge ] || echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
ip link set lo up
link=eth0
if [ "$INDEX" = 1 ]; then
  link=nodes
  ip link add nodes type bridge
  ip address add "$address/24" dev nodes
  ip link set nodes up
else
  until ip address show eth0 2> /dev/null | grep -q "$address"; do sleep 0.05; done # package cluster adds it
fi
ip route add 10.96.0.0/16 dev $link
cat > /etc/cni/net.d/10-pods.conflist << END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.$INDEX.0/24"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"}]}
END

cat > /etc/containerd/config.toml << END
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true # without CAP_SYS_RESOURCE runc cannot lower it, and starts no Pod
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/tools/bin", "/opt/cni/bin"] # the latter is of plugins that Pods install
  conf_dir = "/etc/cni/net.d"
END
cat > /etc/kubernetes/kubelet.yaml << END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /cluster/pki/ca.crt}}
authorization: {mode: Webhook}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
failSwapOn: false
oomScoreAdj: 0
volumePluginDir: /var/lib/kubelet/volume-plugins # /usr is read-only
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 200Mi, imagefs.available: 200Mi, nodefs.inodesFree: "1%"}
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
END
cat > /etc/kubernetes/kube-proxy.yaml << END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: /cluster/kube-proxy.conf}
hostnameOverride: $NODE
clusterCIDR: 10.244.0.0/16
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s} # sysctls of the whole machine
END

keep() { # keep NAME ARGUMENTS...: runs a program, again whenever it ends
  (while true; do
    code=0
    "$@" >> "/var/log/$1.log" 2>&1 || code=$?
    echo "$(date +%T) $1 ended with code $code"
    sleep 0.5
  done) &
}
if [ "$INDEX" = 1 ]; then
  pki=/cluster/pki
  keep etcd --data-dir=/var/lib/etcd --unsafe-no-fsync --log-level=warn \
    --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
    --listen-peer-urls=http://127.0.0.1:2380
  keep kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address="$address" --secure-port=6443 \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged \
    --service-cluster-ip-range=10.96.0.0/16 --client-ca-file=$pki/ca.crt \
    --tls-cert-file=$pki/apiserver.crt --tls-private-key-file=$pki/apiserver.key \
    --kubelet-client-certificate=$pki/apiserver-kubelet-client.crt --kubelet-client-key=$pki/apiserver-kubelet-client.key \
    --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file=$pki/sa.pub --service-account-signing-key-file=$pki/sa.key \
    --requestheader-client-ca-file=$pki/front-proxy-ca.crt --requestheader-allowed-names=front-proxy-client \
    --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
    --requestheader-username-headers=X-Remote-User \
    --proxy-client-cert-file=$pki/front-proxy-client.crt --proxy-client-key-file=$pki/front-proxy-client.key
  keep kube-controller-manager --kubeconfig=/cluster/controller-manager.conf --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file=$pki/sa.key --root-ca-file=$pki/ca.crt \
    --cluster-signing-cert-file=$pki/ca.crt --cluster-signing-key-file=$pki/ca.key
  keep kube-scheduler --kubeconfig=/cluster/scheduler.conf --leader-elect=false
fi
keep containerd
until ctr version > /dev/null 2>&1; do sleep 0.05; done
imports=
for image in /tools/images/*.tar; do
  ctr -n k8s.io images import "$image" >> /var/log/images.log 2>&1 &
  imports+=" $!"
done
wait $imports
keep kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig="/cluster/$NODE/kubelet.conf" \
  --node-ip="$address" --hostname-override="$NODE"
keep kube-proxy --config=/etc/kubernetes/kube-proxy.yaml
while true; do # process 1 reaps what has lost its parent
  wait || true
  sleep 1
done
