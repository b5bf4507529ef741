//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func testUnlink(s *scene) {
	s.sub("kinds", func(s *scene) {
		for _, k := range s.kinds() {
			if k.name == directory.name {
				continue
			}
			s.create(k, k.name, 0)
			s.ok(s.root.Unlink(k.name), "unlink of a %s", k.name)
			s.gone(k.name)
			s.errno(unix.ENOENT, s.root.Unlink(k.name), "unlink again of a %s", k.name)
			s.create(k, k.name, 0)
			s.ok(s.root.Unlink(k.name), "unlink of a %s made again", k.name)
		}
	})
	s.sub("directory", func(s *scene) {
		s.mkdir("d", 0o755)
		s.mkdir("d/e", 0o755)
		for _, p := range []string{"d", "d/e", "d/", ".", "..", "d/.", "d/e/.."} {
			s.errno(unix.EISDIR, s.root.Unlink(p), "unlink of %q", p)
		}
		s.kind("d/e", directory)
	})
	s.sub("symlink", func(s *scene) {
		s.file("f", 0o644)
		s.mkdir("d", 0o755)
		for _, target := range []string{"f", "d", "nosuch"} {
			s.must(s.root.Symlink(target, "l"), "symlink")
			s.ok(s.root.Unlink("l"), "unlink of a link to %q", target)
			s.gone("l")
		}
		s.kind("f", regular)
		s.kind("d", directory)
	})
	s.sub("flags", func(s *scene) {
		s.file("f", 0o644)
		s.errno(unix.EINVAL, s.root.run(command{Op: "unlinkat", P: []byte("f"), Flags: 1}), "unlinkat with a flag that does not exist")
		s.kind("f", regular)
	})
	s.sub("others", func(s *scene) { // a removal requires write permission on the directory, not on the file
		s.needRoot()
		s.mkdir("d", 0o777)
		for i, k := range s.kinds() {
			p := fmt.Sprint("d/", i)
			s.createAs(k, p, 0, bob)
			if k.name == directory.name {
				s.ok(s.as(alice).Rmdir(p), "rmdir of bob's directory")
			} else {
				s.ok(s.as(alice).Unlink(p), "unlink of bob's %s", k.name)
			}
			s.gone(p)
		}
	})
}

func testRmdir(s *scene) {
	s.sub("works", func(s *scene) {
		s.mkdir("d", 0)
		s.ok(s.root.Rmdir("d"), "rmdir")
		s.gone("d")
		s.errno(unix.ENOENT, s.root.Rmdir("d"), "rmdir again")
	})
	s.sub("ENOTEMPTY", func(s *scene) {
		for _, k := range s.kinds() {
			d := "with_" + k.name
			s.mkdir(d, 0o755)
			s.create(k, d+"/x", 0o644)
			s.oneOf([]unix.Errno{unix.ENOTEMPTY, unix.EEXIST}, s.root.Rmdir(d), "rmdir of a directory with a %s", k.name)
			s.kind(d+"/x", k)
			s.remove(k, d+"/x")
			s.ok(s.root.Rmdir(d), "rmdir after removing the %s", k.name)
		}
	})
	s.sub("ENOTDIR", func(s *scene) {
		for _, k := range s.kinds() {
			if k.name == directory.name {
				continue
			}
			s.create(k, k.name, 0o644)
			s.errno(unix.ENOTDIR, s.root.Rmdir(k.name), "rmdir of a %s", k.name)
			s.kind(k.name, k)
		}
	})
	s.sub("dots", func(s *scene) {
		s.mkdir("d", 0o755)
		s.mkdir("d/e", 0o755)
		s.errno(unix.EINVAL, s.root.Rmdir("."), "rmdir of .")
		s.errno(unix.EINVAL, s.root.Rmdir("d/e/."), "rmdir of a path that ends in .")
		s.errno(unix.EINVAL, s.root.Rmdir("d/e/./"), "rmdir of a path that ends in ./")
		s.oneOf([]unix.Errno{unix.ENOTEMPTY, unix.EEXIST}, s.root.Rmdir(".."), "rmdir of ..")
		s.oneOf([]unix.Errno{unix.ENOTEMPTY, unix.EEXIST}, s.root.Rmdir("d/e/.."), "rmdir of a path that ends in ..")
		s.kind("d/e", directory)
		s.ok(s.root.Rmdir("d/e/"), "rmdir of a path that ends in a slash")
	})
	s.sub("open", func(s *scene) { // an open directory or a working directory can be removed
		s.mkdir("d", 0o755)
		other := s.start()
		s.must(other.Chdir("d"), "chdir")
		fd, err := s.root.Open("d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.must(err, "open")
		s.ok(s.root.Rmdir("d"), "rmdir of a working directory")
		_, err = other.Getcwd()
		s.errno(unix.ENOENT, err, "getcwd in a removed directory")
		s.errno(unix.ENOENT, other.Mkdir("x", 0o755), "mkdir in a removed working directory")
		_, err = other.Stat(".")
		s.ok(err, "stat of . in a removed directory")
		_, err = s.root.Fstat(fd)
		s.ok(err, "fstat of a removed directory")
		s.mkdir("d", 0o755)
		_, err = other.Getcwd()
		s.errno(unix.ENOENT, err, "getcwd after another directory got the name")
	})
}
