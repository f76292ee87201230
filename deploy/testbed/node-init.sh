#!/usr/bin/env bash
# The first process of the node's namespaces: prepares them, then runs containerd, kubelet and kube-proxy.
# Everything it writes stays in its run folder or in its own mounts, and everything ends with it.
#
#   node-init.sh <run folder> <node parts> <folder of the Kubernetes programs>
#
# The run folder holds node.env (NODE_NAME, NODE_ADDRESS, HOST_ADDRESS, POD_RANGE), certificates and kubeconfigs;
# this script adds `ready`. The network link `node0` is put into the network namespace from outside.
set -euo pipefail
RUN=$1 PARTS=$2 PROGRAMS=$3
source "$RUN/node.env"
export PATH=$PARTS/usr/sbin:$PARTS/usr/bin:$PARTS/sbin:$PARTS/bin:$PROGRAMS:$PATH

wait_for() { # seconds, what, command...
  local tenths=$(($1 * 10)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    tenths=$((tenths - 1))
    [ "$tenths" -gt 0 ] || { echo "gave up waiting for $what" >&2; exit 1; }
    sleep 0.1
  done
}

# Programs unpacked from packages find their libraries beside them; nobody else must (the system's own would break).
with_libraries() {
  local folders
  folders=$(ls -d "$PARTS"/usr/lib/*-linux-gnu "$PARTS"/lib/*-linux-gnu 2>/dev/null | paste -sd:)
  LD_LIBRARY_PATH=$folders "$@"
}

# --- own views of the folders that kubelet and containerd write to outside of what they are told
mount --make-rprivate /
mount -t proc proc /proc
mkdir -p "$RUN"/{lib,log,etc,cni/net.d,containerd,plugins,sysctl}
mount -t tmpfs -o mode=755 run /run
mount --bind "$RUN/lib" /var/lib
mount --bind "$RUN/log" /var/log
printf '127.0.0.1 localhost\n%s %s\n' "$NODE_ADDRESS" "$NODE_NAME" > "$RUN/etc/hosts"
printf 'options ndots:1\n' > "$RUN/etc/resolv.conf"
for file in hosts resolv.conf; do
  [ ! -e "/etc/$file" ] || mount --bind "$RUN/etc/$file" "/etc/$file"
done

# --- settings that kubelet insists on: shown to it with the value it wants, while the kernel keeps its own
show_sysctl() {
  printf '%s\n' "$2" > "$RUN/sysctl/${1//\//.}"
  mount --bind "$RUN/sysctl/${1//\//.}" "/proc/sys/$1"
}
show_sysctl vm/overcommit_memory 1
show_sysctl vm/panic_on_oom 0
show_sysctl kernel/panic 10
show_sysctl kernel/panic_on_oops 1
show_sysctl kernel/keys/root_maxkeys 1000000
show_sysctl kernel/keys/root_maxbytes 25000000

# --- control groups, mounted anew so that their root is the root of our namespace
if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then
  umount -R /sys/fs/cgroup
  mount -t cgroup2 cgroup /sys/fs/cgroup
  # A group that gives controllers to its children may hold no process itself.
  mkdir /sys/fs/cgroup/node-init
  echo 1 > /sys/fs/cgroup/node-init/cgroup.procs
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control || true
  done
else
  hierarchies=$(awk '{
    for (i = 1; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup") { n = split($5, part, "/"); print part[n] }
  }' /proc/self/mountinfo | sort -u | grep -vx systemd || true)
  umount -R /sys/fs/cgroup
  mount -t tmpfs -o mode=755 cgroups /sys/fs/cgroup
  for hierarchy in $hierarchies; do
    mkdir "/sys/fs/cgroup/$hierarchy"
    mount -t cgroup -o "$hierarchy" cgroup "/sys/fs/cgroup/$hierarchy"
  done
  # containerd's shim misses out-of-memory events when the named hierarchy is in /proc/PID/cgroup but not mounted
  if grep -q name=systemd /proc/self/cgroup; then
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
  fi
fi
mount --make-rshared /

# --- network: the link from outside carries the node's address, pods hang on a bridge
hostname "$NODE_NAME"
ip() { with_libraries command ip "$@"; }
ip link set lo up
wait_for 20 "the network link" ip link show node0
ip addr add "$NODE_ADDRESS/24" dev node0
ip link set node0 up
ip route add default via "$HOST_ADDRESS"
echo 1 > /proc/sys/net/ipv4/ip_forward
cat > "$RUN/cni/net.d/10-bridge.conflist" <<CNI
{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
    "ipam": {
      "type": "host-local", "dataDir": "$RUN/cni/addresses",
      "ranges": [[{"subnet": "$POD_RANGE"}]], "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
CNI

# --- containerd (configuration version 2 is read by 1.6 and everything later)
cat > "$RUN/containerd.toml" <<TOML
version = 2
root = "$RUN/containerd/root"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$RUN/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  disable_apparmor = true
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$PARTS/usr/lib/cni"
    conf_dir = "$RUN/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$RUN/runc"
        SystemdCgroup = false
TOML
# runc needs its library, containers must not see the path to it: a wrapper sets it for runc alone.
folders=$(ls -d "$PARTS"/usr/lib/*-linux-gnu "$PARTS"/lib/*-linux-gnu 2>/dev/null | paste -sd:)
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$folders" "$(PATH=$PARTS/usr/sbin:$PARTS/usr/bin type -P runc)" > "$RUN/runc"
chmod 755 "$RUN/runc"
containerd --config "$RUN/containerd.toml" > "$RUN/containerd.log" 2>&1 &
wait_for 20 containerd ctr version
for image in "$RUN"/images/*.tar; do
  ctr -n k8s.io images import --snapshotter overlayfs "$image"
done

# --- kubelet
cat > "$RUN/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: "$RUN/ca.crt"}
authorization: {mode: Webhook}
tlsCertFile: $RUN/kubelet-server.crt
tlsPrivateKeyFile: $RUN/kubelet-server.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard:
  memory.available: "0%"
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
  imagefs.available: "0%"
  imagefs.inodesFree: "0%"
  pid.available: "0%"
resolvConf: $RUN/etc/resolv.conf
volumePluginDir: $RUN/plugins
syncFrequency: 10s
nodeStatusUpdateFrequency: 4s
shutdownGracePeriod: 0s
YAML
kubelet --config "$RUN/kubelet.yaml" --kubeconfig "$RUN/kubelet.kubeconfig" --hostname-override "$NODE_NAME" \
  --node-ip "$NODE_ADDRESS" > "$RUN/kubelet.log" 2>&1 &

# --- kube-proxy: the addresses of services, by nftables in our own network namespace
cat > "$RUN/kube-proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: $NODE_NAME
clientConnection: {kubeconfig: "$RUN/kube-proxy.kubeconfig"}
clusterCIDR: $POD_RANGE
healthzBindAddress: ""
metricsBindAddress: ""
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nodePortAddresses: ["$NODE_ADDRESS/32"]
YAML
with_libraries kube-proxy --config "$RUN/kube-proxy.yaml" > "$RUN/kube-proxy.log" 2>&1 &
echo up > "$RUN/ready"

# Orphans of the whole process namespace land here: collect them for as long as the node runs.
while :; do
  wait -n || true
  sleep 0.5
done
