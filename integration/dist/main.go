package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "", "build a release into this empty or missing `directory`")
	dest := flag.String("install", "", "install rootsfs below this `directory`, which stands for /")
	prefix := flag.String("prefix", "/usr/local", "install below this `path`")
	withCompanion := flag.Bool("companion", true, "with the second package, rootsfs-fleet")
	native := flag.Bool("native", false, "for tests: compile for this machine only, with scripts in place of the other programs")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() > 0:
		err = fmt.Errorf("%q is one argument too many", flag.Arg(0))
	case (*out == "") == (*dest == ""):
		err = errors.New("write -out DIRECTORY or -install DIRECTORY")
	case *out != "":
		err = makeRelease(ctx, "integration/dist", *out, *withCompanion, *native)
	default:
		err = install(ctx, "integration/dist", *dest, *prefix, *withCompanion)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "dist: %v\n", err)
		os.Exit(1)
	}
}

// release has the inputs for the parts of a release.
type release struct {
	*description
	version version
	stages  map[string]*stage // by architecture
	out     string
}

// packages returns the release of rootsfs and, if there is a second package, the release of the
// second package. Both go into the same directory.
func (r *release) packages() []*release {
	if r.Companion.Name == "" {
		return []*release{r}
	}
	c := *r
	c.description = r.description.companion()
	return []*release{r, &c}
}

// path returns the path of the release's file with the given name.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// title returns the file name, without the extension, of the archive, the bundle and the bill of
// materials for an architecture.
func (r *release) title(arch string) string {
	return fmt.Sprintf("%s-%s-linux-%s", r.Name, r.version.semver(), arch)
}

// makeRelease builds every file of a release of rootsfs into out and, if withCompanion is set,
// every file of the second package. If native is set, the programs for other machines are
// placeholders. dir is integration/dist in a checkout.
func makeRelease(ctx context.Context, dir, out string, withCompanion, native bool) error {
	if names, err := os.ReadDir(out); err == nil && len(names) > 0 {
		return fmt.Errorf("%s is not empty: remove it first", out)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "rootsfs-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	r := &release{out: out}
	if r.description, err = readDescription(dir, withCompanion); err != nil {
		return err
	}
	if r.version, err = readVersion(ctx, dir); err != nil {
		return err
	}
	if r.stages, err = r.build(ctx, r.version, temp, r.Arches, native); err != nil {
		return err
	}
	var jobs errgroup.Group
	jobs.SetLimit(runtime.NumCPU())
	for _, arch := range r.Arches {
		s := r.stages[arch]
		jobs.Go(func() error { return r.writeBundle(s) })
		jobs.Go(func() error { return r.writePlatformNPM(s) })
		for _, of := range r.packages() {
			jobs.Go(func() error { return of.writeArchive(s) })
			if !s.isPlaceholder {
				jobs.Go(func() error { return of.writeMaterials(s) })
			}
			for _, kind := range packageKinds {
				jobs.Go(func() error { return of.writePackage(kind, s) })
			}
		}
	}
	jobs.Go(r.writeNPM)
	if err := jobs.Wait(); err != nil {
		return err
	}
	if err := r.writeServer(); err != nil {
		return err
	}
	return writeSums(out)
}
