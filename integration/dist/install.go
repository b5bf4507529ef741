package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// install builds rootsfs for this machine and puts its files below prefix, in the directory dest,
// which stands for /. If withCompanion is set, install also installs the second package.
func install(ctx context.Context, dir, dest, prefix string, withCompanion bool) error {
	if !filepath.IsAbs(prefix) {
		return fmt.Errorf("-prefix %s: the path must be absolute", prefix)
	}
	d, err := readDescription(dir, withCompanion)
	if err != nil {
		return err
	}
	v, err := readVersion(ctx, dir)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "rootsfs-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	stages, err := d.build(ctx, v, temp, nil, true)
	if err != nil {
		return err
	}
	files, err := d.files("install", stages[runtime.GOARCH].built)
	if err != nil {
		return err
	}
	more, err := d.companion().files("install", stages[runtime.GOARCH].built)
	if err != nil {
		return err
	}
	for _, f := range append(files, more...) {
		target := filepath.Join(dest, prefix, f.target)
		data, err := f.content(filepath.Join(prefix, "bin"))
		if err != nil {
			return err
		}
		if err := replace(target, data, f.mode); err != nil {
			return err
		}
		fmt.Println(target)
	}
	return nil
}

// replace writes a file under another name and renames the file to target, because a running
// program cannot be overwritten.
func replace(target string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(target), ".rootsfs-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // fails once the file is renamed
	if _, err := temp.Write(data); err != nil {
		return err
	}
	if err := temp.Chmod(mode); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), target)
}
