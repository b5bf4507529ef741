package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHolding: only the parts that still work are counted.
func TestHolding(t *testing.T) {
	l := newLab(t)
	if err := l.prepareNames(context.Background(), tiny.MemFiles, tiny.Handles); err != nil {
		t.Fatal(err)
	}
	h := &holding{dir: l.path("names"), inodes: 100}
	if err := h.openFiles(10); err != nil {
		t.Fatal(err)
	}
	if got := h.countAlive(); got != (aliveParts{10, 10, 90}) || got != h.all() {
		t.Errorf("alive: %v", got)
	}
	// Emptied files have no page to map and nothing to read; a renamed directory
	// has no names.
	for i := range 10 {
		if err := os.Truncate(filepath.Join(h.dir, heldFile(i)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(h.dir, namesDir(0)), filepath.Join(h.dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if got := h.countAlive(); got != (aliveParts{}) {
		t.Errorf("alive after the end: %v", got)
	}
}

// TestFalseRevocation: a "revoke" that reports success and leaves things usable
// is broken, however fast it was (R070).
func TestFalseRevocation(t *testing.T) {
	l := newLab(t)
	p := loopback(t, l)
	if err := l.prepareNames(context.Background(), tiny.Inodes[0], tiny.Handles); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, script, message string }{
		{"nothing is done", "exit 0", "20 descriptors, 20 mappings, 280 names"},
		{"unmounted only", `[ $1 = version ] || umount -l "$3"`, "20 descriptors, 20 mappings"},
		{"refused", `[ $1 = version ] || { echo no such session; exit 4; }`, "no such session"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "unmounted only" && !l.root {
				t.Skip("umount -l needs root")
			}
			l.rootsfs = filepath.Join(t.TempDir(), "rootsfs")
			if err := os.WriteFile(l.rootsfs, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			r := &revocation{Peer: p.name, Inodes: tiny.Inodes[0], Handles: tiny.Handles}
			err := l.revokeOnce(context.Background(), p, r)
			if err == nil || !strings.Contains(err.Error(), tt.message) || len(r.Seconds) > 0 {
				t.Errorf("%v, want %q; seconds %v", err, tt.message, r.Seconds)
			}
		})
	}
}

// TestMemory: the bare tree and the peer are measured, before and after names are looked up.
func TestMemory(t *testing.T) {
	l := newLab(t)
	p := loopback(t, l)
	rows, err := l.memory(context.Background(), []peer{{name: native}, p}, tiny.MemFiles)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Peer != bareNodes || rows[1].Peer != p.name {
		t.Fatalf("rows: %+v", rows)
	}
	for _, r := range rows {
		if r.Broken != "" || r.Empty <= 0 || r.RSS <= 0 || r.Files != tiny.MemFiles {
			t.Errorf("%+v", r)
		}
	}
}
