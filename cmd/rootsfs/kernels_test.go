package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// The oldest kernels that documents name are those in the code.
func TestDocumentsNameTheOldestKernels(t *testing.T) {
	for file, says := range map[string][]string{
		"../../README.md": {
			"Linux " + sandbox.LeastKernel + " or newer, amd64 and arm64, with FUSE.",
			"`rootsfs run` needs Linux " + sandbox.NamespacesKernel + " or newer, or bubblewrap.",
		},
		"help/confinement.md": {
			"| `namespaces` | Linux " + sandbox.NamespacesKernel + " or newer,",
			"| `landlock` | Linux " + sandbox.LandlockKernel + " or newer,",
		},
		"help/troubleshooting.md":           {"older than Linux " + sandbox.NamespacesKernel + " "},
		"../../vfs/internal/beneath/doc.go": {"Linux only, " + sandbox.LeastKernel + " or newer"},
		"../../mount/sandbox/doc.go":        {"Works on Linux " + sandbox.LeastKernel + " and newer, on amd64 and arm64; level Namespaces on " + sandbox.NamespacesKernel + ", and Landlock on // " + sandbox.LandlockKernel},
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(b)), " ")
		for _, want := range says {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", file, want)
			}
		}
	}
}
