package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// userland is the Debian release that every machine runs. It is the same for every kernel, so that
// the rows of the table differ by the kernel only.
const (
	userland         = "bookworm"
	userlandPackages = "acl,attr,bubblewrap,fuse3,git,iproute2,procps,python3,rsync,sqlite3"
)

// keysRelease is the Debian release that the package of Ubuntu's keys comes from.
const keysRelease = "trixie"

// modules are the kernel modules that the tests use. A kernel may have some of them built in.
var modules = []string{"virtio_pci", "virtio_blk", "ext4", "fuse", "overlay", "tun", "veth", "loop", "af_packet", "unix"}

//go:embed guest.sh hold.py init.sh
var guestFiles embed.FS

// lab is the state that all machines share.
type lab struct {
	*options
	work string // a temporary directory
	repo string
	// base is the disk image of the userland; files is the disk image with rootsfs, its sources
	// and tests.
	base, files string
}

// prepare makes the disks that every machine gets.
func (l *lab) prepare(ctx context.Context) error {
	out, err := call{limit: time.Minute}.run(ctx, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	l.repo = strings.TrimSpace(out)
	for _, dir := range []*string{&l.out, &l.cache} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
		if err := os.MkdirAll(*dir, 0o755); err != nil {
			return err
		}
	}
	if err := l.findMirrors(ctx); err != nil {
		return err
	}
	if err := l.buildFiles(ctx); err != nil {
		return err
	}
	return l.buildBase(ctx)
}

// buildFiles builds rootsfs and the tests, and puts them on a disk with the sources.
func (l *lab) buildFiles(ctx context.Context) error {
	progress("build rootsfs and its tests")
	dir := filepath.Join(l.work, "files")
	for _, sub := range []string{"bin", "tests", "src"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	build := call{limit: 20 * time.Minute, dir: l.repo, env: []string{"CGO_ENABLED=0"}}
	if _, err := build.run(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/bin/rootsfs", "./cmd/rootsfs"); err != nil {
		return err
	}
	for _, p := range l.suiteList() {
		binary := filepath.Join(dir, "tests", strings.ReplaceAll(p, "/", "_")+".test")
		if _, err := build.run(ctx, "go", "test", "-c", "-vet=off", "-o", binary, "./"+p); err != nil {
			return err
		}
	}
	if _, err := build.run(ctx, "sh", "-c", `git ls-files -z -c -o --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -x -C "$1"`, "sh", dir+"/src"); err != nil {
		return err
	}
	// Tests that build rootsfs (testkit.Build) get the program that is built already.
	const goCommand = `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	-o) to=$2 ;;
	../../cmd/rootsfs) exec cp /k/bin/rootsfs "$to" ;;
	esac
	shift
done
echo 'there is no Go here' >&2
exit 1
`
	if err := os.WriteFile(dir+"/bin/go", []byte(goCommand), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"guest.sh", "hold.py"} {
		if err := copyGuestFile(name, filepath.Join(dir, name), 0o644); err != nil {
			return err
		}
	}
	l.files = filepath.Join(l.work, "files.ext4")
	return makeDisk(ctx, dir, l.files, "2G")
}

func (l *lab) suiteList() []string {
	return strings.FieldsFunc(l.suites, func(r rune) bool { return r == ',' })
}

func copyGuestFile(name, to string, mode fs.FileMode) error {
	b, err := guestFiles.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, mode)
}

// buildBase makes the disk image of the userland, unless the cache has it.
func (l *lab) buildBase(ctx context.Context) error {
	l.base = filepath.Join(l.cache, "base-"+userland+"-"+strings.ReplaceAll(userlandPackages, ",", "-")+".ext4")
	if exists(l.base) {
		return nil
	}
	keyring, err := l.keyring(ctx, debian)
	if err != nil {
		return err
	}
	mirror, err := l.mirror(debian, userland)
	if err != nil {
		return err
	}
	progress("build the disk image of Debian %s from %s", userland, mirror)
	dir, img := filepath.Join(l.work, "base"), filepath.Join(l.work, "base.ext4")
	if _, err := (call{limit: 20 * time.Minute}).run(ctx, "mmdebstrap", "--variant=minbase", "--keyring="+keyring, "--include="+userlandPackages,
		`--customize-hook=chroot "$1" useradd -m -s /bin/bash tester; mkdir -p "$1/k" "$1/results"`, userland, dir, mirror); err != nil {
		return err
	}
	if err := makeDisk(ctx, dir, img, "3G"); err != nil {
		return err
	}
	// Copy under another name first, so that a file under the final name is always complete.
	if _, err := (call{limit: 5 * time.Minute}).run(ctx, "cp", "--sparse=always", img, l.base+".new"); err != nil {
		return err
	}
	return os.Rename(l.base+".new", l.base)
}

// makeDisk makes a file system that contains the files of dir, and removes dir. It leaves out
// features that the oldest kernels do not know.
func makeDisk(ctx context.Context, dir, img, size string) error {
	if _, err := (call{limit: 10 * time.Minute}).run(ctx, "mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum_seed,^orphan_file", "-d", dir, img, size); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// buildInitrd makes the initramfs for the kernel that is unpacked in dir. The initramfs has
// busybox, init.sh, the kernel modules in the variable modules, and the modules that these need.
func buildInitrd(ctx context.Context, dir, version, initrd string) error {
	// depmod looks only in /lib, also if /lib has been merged into /usr.
	if !exists(dir + "/lib") {
		if err := os.Symlink("usr/lib", dir+"/lib"); err != nil {
			return err
		}
	}
	c := call{limit: 5 * time.Minute, dir: dir}
	if _, err := c.run(ctx, "depmod", "-b", dir, version); err != nil {
		return err
	}
	root := filepath.Join(dir, "initrd")
	for _, sub := range []string{"bin", "dev", "proc", "sys", "new", "m"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			return err
		}
	}
	var order strings.Builder
	for _, m := range modules {
		out, err := c.run(ctx, "modprobe", "-d", dir, "-S", version, "--show-depends", m)
		if err != nil {
			continue // built in under another name, or missing: if m is missing, a test that needs it fails
		}
		for line := range strings.Lines(out) {
			path, ok := strings.CutPrefix(strings.TrimSpace(line), "insmod ")
			if !ok {
				continue // builtin
			}
			if err := addModule(ctx, strings.TrimSpace(path), root, &order); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile(root+"/order", []byte(order.String()), 0o644); err != nil {
		return err
	}
	if err := copyGuestFile("init.sh", root+"/init", 0o755); err != nil {
		return err
	}
	_, err := call{limit: 5 * time.Minute, dir: root}.run(ctx, "sh", "-c", `cp "$(command -v busybox)" bin/busybox && find . | busybox cpio -o -H newc >"$1"`, "sh", initrd)
	return err
}

// addModule puts a module into the initramfs and its name into order, once.
func addModule(ctx context.Context, path, root string, order *strings.Builder) error {
	name, packing, _ := strings.Cut(filepath.Base(path), ".ko")
	to := filepath.Join(root, "m", name+".ko")
	if exists(to) {
		return nil
	}
	program, ok := map[string]string{"": "cat", ".xz": "xz -dc", ".zst": "zstd -dcq", ".gz": "gzip -dc"}[packing]
	if !ok {
		return fmt.Errorf("%s: unknown compression", path)
	}
	if _, err := (call{limit: time.Minute}).run(ctx, "sh", "-c", program+` <"$1" >"$2"`, "sh", path, to); err != nil {
		return err
	}
	fmt.Fprintln(order, name+".ko")
	return nil
}
