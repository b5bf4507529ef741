package main

import (
	archive "archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Further work rows: programs that make many files, or lock and map one. The files that a program
// needs are copied into the mount just before it starts.
const (
	npmInstall   phase = "npm install"
	goBuild      phase = "go build"
	makeParallel phase = "make -j4"
	sqliteWAL    phase = "sqlite WAL"
	nodeRequire  phase = "node require"
	runTests     phase = "tests"
)

// programSteps has the program that each row needs; "" stands for this program.
var programSteps = []struct {
	phase phase
	needs string
}{{npmInstall, "npm"}, {goBuild, "go"}, {makeParallel, "make"}, {sqliteWAL, "sqlite3"}, {nodeRequire, "node"}, {runTests, ""}}

func programPhases() (all []phase) {
	for _, s := range programSteps {
		all = append(all, s.phase)
	}
	return all
}

// missingProgram returns why a phase cannot be measured; "" if it can.
func missingProgram(p phase) string {
	for _, s := range programSteps {
		if s.phase == p && s.needs != "" {
			if _, err := exec.LookPath(s.needs); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// The fixture of the programs has sizes.Programs times these numbers. The last two are not
// multiplied.
const (
	npmFiles   = 50  // in sizes.Programs packages
	goPackages = 2   // of one file
	cFiles     = 3   // with an object each
	sqlRows    = 50  // each inserted by a transaction of its own
	modules    = 15  // in three packages
	testFiles  = 100 // written, read back and removed
	// testsAtOnce is how many tests run at a time, each in a directory of its own.
	testsAtOnce, filesEachTest = 4, 10
)

func (l *lab) programsDir() string { return fmt.Sprintf("programs-%d", l.size.Programs) }

// makePrograms makes the directory with the files that the programs need.
func makePrograms(dir string, scale int) error {
	files := map[string]string{
		"npm/package.json": `{"name": "app", "version": "1.0.0", "private": true}` + "\n",
		"go/go.mod":        "module example.com/bench\n\ngo 1.21\n",
		"make/Makefile":    "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\nall.a: $(OBJECTS)\n\tar rc $@ $(OBJECTS)\n",
		"sqlite/script":    "PRAGMA journal_mode=WAL;\nPRAGMA synchronous=NORMAL;\nCREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT);\n",
	}
	for i := range scale * goPackages {
		files[fmt.Sprintf("go/p%03d/p.go", i)] = fmt.Sprintf("package p%03d\n\n// F adds.\nfunc F(a int) int { return a + %d }\n", i, i)
	}
	for i := range scale * cFiles {
		files[fmt.Sprintf("make/f%03d.c", i)] = fmt.Sprintf("#include <stdio.h>\nint f%d(void) { return printf(\"%%d\\n\", %d); }\n", i, i)
	}
	for i := range scale * modules {
		files[fmt.Sprintf("node/node_modules/p%d/lib/m%03d.js", i%3, i)] = fmt.Sprintf("exports.value = %d; // %s\n", i, strings.Repeat("rootsfs bench ", 100))
	}
	for i := range 3 {
		files[fmt.Sprintf("node/node_modules/p%d/index.js", i)] = fmt.Sprintf("for (let i = %d; i < %d; i += 3) exports[i] = require('./lib/m' + String(i).padStart(3, '0')).value;\n", i, scale*modules)
	}
	files["node/app.js"] = "console.log([0, 1, 2].map(i => Object.keys(require('p' + i)).length).reduce((a, b) => a + b));\n"
	script := strings.Repeat("INSERT INTO t (text) VALUES (hex(randomblob(100)));\n", scale*sqlRows)
	files["sqlite/script"] += script + "SELECT count(*) FROM t;\n"
	var err error
	for name, content := range files {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
	}
	for i := range scale {
		err = errors.Join(err, makeTarball(filepath.Join(dir, "npm", fmt.Sprintf("pkg%02d.tgz", i)), fmt.Sprintf("pkg%02d", i)))
	}
	return errors.Join(err, writeBack(dir))
}

// makeTarball makes a package as npm pack does.
func makeTarball(path, name string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z := gzip.NewWriter(f)
	w := archive.NewWriter(z)
	add := func(file, content string) {
		head := &archive.Header{Name: "package/" + file, Typeflag: archive.TypeReg, Mode: 0o644, Size: int64(len(content))}
		err = errors.Join(err, w.WriteHeader(head))
		if err == nil {
			_, err = io.WriteString(w, content)
		}
	}
	add("package.json", fmt.Sprintf(`{"name": %q, "version": "1.0.0"}`+"\n", name))
	for i := range npmFiles {
		size := workSizes[i%len(workSizes)]
		line := fmt.Sprintf("exports.value%d = '%s' // rootsfs bench\n", i, name)
		add(fmt.Sprintf("lib/d%d/f%02d.js", i%5, i), strings.Repeat(line, int(size)/len(line)+1)[:size])
	}
	return errors.Join(err, w.Close(), z.Close())
}

// programs runs the program of the job's phase. The clock stands still while the program's files
// are copied.
func programs(j *job) error {
	j.stop()
	kind, _, _ := strings.Cut(string(j.phase), " ")
	dir := j.via(scratch, kind)
	if j.phase != runTests {
		if _, err := j.program("cp", "-r", j.via(j.lab.programsDir(), kind), dir); err != nil {
			return err
		}
	}
	j.start()
	out, err := j.runProgram(dir)
	j.stop()
	if err != nil {
		return err
	}
	return j.checkProgram(j.result(scratch, kind), out)
}

func (j *job) runProgram(dir string) (string, error) {
	switch j.phase {
	case npmInstall:
		args := []string{"install", "--prefix", dir, "--cache", dir + "/cache", "--offline", "--ignore-scripts",
			"--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"}
		for i := range j.size.Programs {
			args = append(args, fmt.Sprintf("%s/pkg%02d.tgz", dir, i))
		}
		return j.program("npm", args...)
	case goBuild:
		return j.program("env", "GOENV=off", "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "GOTOOLCHAIN=local", "GOPATH="+dir+"/path", "GOCACHE="+dir+"/cache",
			"go", "build", "-C", dir, "./...")
	case makeParallel:
		return j.program("make", "-s", "-j4", "-C", dir)
	case sqliteWAL:
		return j.program("sqlite3", dir+"/data", ".read "+dir+"/script")
	case nodeRequire:
		return j.program("node", dir+"/app.js")
	}
	return j.program(j.lab.self, childTests, dir, strconv.Itoa(j.size.Programs*testFiles))
}

// checkProgram checks the files that a program has left in dir, and the output that it has printed.
func (j *job) checkProgram(dir, out string) error {
	switch j.phase {
	case npmInstall:
		installed, err := filepath.Glob(filepath.Join(dir, "node_modules", "pkg*", "lib", "*", "*.js"))
		return errors.Join(err, want("installed files", int64(len(installed)), int64(j.size.Programs*npmFiles)))
	case goBuild:
		built, err := filepath.Glob(filepath.Join(dir, "cache", "*", "*-d"))
		if packages := j.size.Programs * goPackages; err == nil && len(built) < packages {
			err = fmt.Errorf("%d files in the cache for %d packages", len(built), packages)
		}
		return err
	case makeParallel:
		_, err := os.Lstat(filepath.Join(dir, "all.a"))
		return err
	case sqliteWAL:
		if wanted := fmt.Sprintf("wal\n%d\n", j.size.Programs*sqlRows); out != wanted {
			return fmt.Errorf("sqlite printed %q, want %q", out, wanted)
		}
		_, err := os.Lstat(filepath.Join(dir, "data"))
		return err
	case nodeRequire:
		if wanted := fmt.Sprintf("%d\n", j.size.Programs*modules); out != wanted {
			return fmt.Errorf("node printed %q, want %q", out, wanted)
		}
		return nil
	}
	return wantTree(dir, 0, 0)
}

// childTests is the mode in which this program writes, reads and removes files, as tests with
// temporary directories do. The arguments are the directory, which must not exist, and the number of
// files.
const childTests = "child-tests"

func runTestFiles(dir string, files string) error {
	count, err := strconv.Atoi(files)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return err
	}
	tests := make(chan int)
	errs := make([]error, testsAtOnce)
	var all sync.WaitGroup
	for i := range testsAtOnce {
		all.Go(func() {
			for test := range tests {
				errs[i] = errors.Join(errs[i], runOneTest(filepath.Join(dir, strconv.Itoa(test))))
			}
		})
	}
	for test := range count / filesEachTest {
		tests <- test
	}
	close(tests)
	all.Wait()
	return errors.Join(errs...)
}

func runOneTest(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for i := range filesEachTest {
		path, content := filepath.Join(dir, fmt.Sprintf("golden%d.json", i)), []byte(strings.Repeat("{}\n", 200+i))
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, content) {
			return fmt.Errorf("%s: %d bytes that were not written", path, len(got))
		}
	}
	// If a file is removed before the kernel's RELEASE of it has come, libfuse 2 renames the file,
	// and removes it at the RELEASE. So directories of bindfs are not empty for a moment.
	for range 100 {
		if err := os.RemoveAll(dir); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return os.RemoveAll(dir)
}
