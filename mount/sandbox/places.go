package sandbox

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// Places are the directories that belong to one command alone, as paths inside.
type Places struct {
	Home    string // HOME; kept between runs with Options.Home
	Tmp     string // TMPDIR
	Runtime string // XDG_RUNTIME_DIR
}

const (
	// MinTmpSize is the least Options.TmpSize: it holds npm's cache of a small server.
	MinTmpSize = 16 << 20
	maxTmpSize = 2 << 30
)

// defaultTmpSize is a quarter of the memory, at most maxTmpSize: two commands
// that fill theirs leave the machine alive.
func defaultTmpSize() int64 {
	return max(MinTmpSize, min(maxTmpSize, memory()/4))
}

// DefaultMemory is a limit for Options.MemoryMax that leaves room for others: three
// quarters of the machine's memory, in bytes.
func DefaultMemory() int64 {
	return max(MinMemory, memory()/4*3)
}

// memory is the machine's, in bytes; the least that is expected if nobody knows.
func memory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return maxTmpSize
	}
	return int64(info.Totalram) * int64(info.Unit) //nolint:unconvert // their types differ by architecture
}

// places returns where the private directories are at a level.
func places(o *Options, level Level) Places {
	if level == Landlock || level == None {
		p := Places{Home: filepath.Join(o.Private, "home"), Tmp: filepath.Join(o.Private, "tmp"), Runtime: filepath.Join(o.Private, "runtime")}
		if o.Home != "" {
			p.Home = o.Home
		}
		return p
	}
	p := Places{Home: layout.Home, Tmp: "/tmp", Runtime: layout.Runtime}
	if o.Map == Same && slices.Contains(o.Roots, "/tmp") {
		p.Tmp = layout.Tmp
	}
	return p
}

// environ names the places to programs. XDG's directories and the caches of npm,
// pip and Go are named one by one, because a system-wide configuration may point
// them elsewhere.
func (p Places) environ() []string {
	home := func(elem ...string) string { return filepath.Join(append([]string{p.Home}, elem...)...) }
	return []string{
		"HOME=" + p.Home,
		"TMPDIR=" + p.Tmp, "TMP=" + p.Tmp, "TEMP=" + p.Tmp,
		"XDG_RUNTIME_DIR=" + p.Runtime,
		"XDG_CACHE_HOME=" + home(".cache"),
		"XDG_CONFIG_HOME=" + home(".config"),
		"XDG_DATA_HOME=" + home(".local", "share"),
		"XDG_STATE_HOME=" + home(".local", "state"),
		"npm_config_cache=" + home(".npm"),
		"PIP_CACHE_DIR=" + home(".cache", "pip"),
		"GOPATH=" + home("go"),
		"GOMODCACHE=" + home("go", "pkg", "mod"),
		"GOCACHE=" + home(".cache", "go-build"),
	}
}
