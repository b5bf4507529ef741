#!/bin/busybox sh
# init.sh is the first program of a virtual machine: it loads the modules, mounts the two
# disks, and starts guest.sh in them.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r m; do $b insmod "/m/$m" || echo "=== result modules FAILED: $m cannot be loaded"; done </order
n=0
until [ -b /dev/vdc ] || [ $n -gt 300 ]; do $b sleep 0.1; n=$((n + 1)); done
if ! $b mount -t ext4 /dev/vda /new || ! $b mount -t ext4 /dev/vdb /new/k; then
	echo "=== result disks FAILED: they cannot be mounted"
	$b poweroff -f
fi
for d in proc sys dev; do $b mount --move /$d /new/$d; done
exec $b switch_root -c /dev/console /new /bin/bash /k/guest.sh
