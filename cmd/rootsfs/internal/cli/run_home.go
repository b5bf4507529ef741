package cli

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard/names"
)

// keptHome returns the directory of a kept HOME: one that stays after the run. elem has the
// elements of its path below the data directory of rootsfs.
func keptHome(elem ...string) (string, error) {
	dir, err := xdg.Data(elem...)
	if err != nil {
		return "", errors.New("HOME is not set: say where another one is kept, with --home DIRECTORY")
	}
	return dir, nil
}

// isKept reports whether dir, a path without links, is or lies in the data directory of rootsfs.
// rootsfs keeps HOMEs there.
func isKept(dir string) bool {
	data, err := xdg.Data()
	return err == nil && names.Under(dir, session.Resolve(data))
}

// holdsHomes reports whether dir, a path without links, is a directory for several kept HOMEs. As
// a HOME, such a directory would give a command all of them.
func holdsHomes(dir string) bool {
	data, err := xdg.Data()
	if err != nil {
		return false // there are no kept HOMEs
	}
	data = session.Resolve(data)
	if names.Under(data, dir) {
		return true
	}
	rel, _ := strings.CutPrefix(dir, data+"/")
	switch kind, rest, _ := strings.Cut(rel, "/"); kind {
	case "homes", "servers": // AGENT/REPOSITORY, HOST/SERVER
		return !strings.Contains(rest, "/")
	case "agents": // AGENT: older versions made one HOME for all repositories
		return rest == ""
	}
	return false
}

// agentHome chooses the HOME of an agent: that of --home, else that of the configuration, else
// one for the repository around the command's working directory (or for this directory, if it is
// in no repository). Later runs with the same HOME read and execute files that an agent wrote
// there, so repositories share a HOME only if the owner says so.
func (f *runFlags) agentHome(cmd *cobra.Command, p *runPlan) (err error) {
	if f.Agent == "" || cmd.Flags().Changed("home") {
		return nil
	}
	if f.home = p.session.Config.Agents[f.Agent].HomeDir; f.home != "" {
		return nil
	}
	dir := p.workDir()
	if dir == "" {
		if dir, err = workingDir(); err != nil {
			return err
		}
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	top, _ := gitTop(dir)
	repository := cmp.Or(top, dir)
	p.newHome = newHomeNote(f.Agent, repository)
	f.home, err = keptHome("homes", f.Agent, homeName(repository))
	return err
}

// homeName returns the name for the HOME of a repository. Different paths give different names.
func homeName(repository string) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, filepath.Base(repository))
	return fmt.Sprintf("%.40s-%.8x", name, sha256.Sum256([]byte(repository)))
}

// newHomeNote returns a note about a new HOME of an agent: which repository it is for.
func newHomeNote(agent, repository string) string {
	note := fmt.Sprintf("this HOME is new, and for %s alone: log in inside, or pass a key as a variable; --home DIRECTORY shares one HOME among projects", quoteIfNeeded(repository))
	if old, err := keptHome("agents", agent); err == nil {
		if _, err := os.Lstat(old); err == nil { // made by an older version
			note += "; the one that all projects shared before is still there: --home " + names.ShellWord(old)
		}
	}
	return note
}

// makeHome makes the directory of a kept HOME for the user uid. It accepts an existing directory
// only if that user owns the directory. It changes the owner only of a new directory that is empty.
func makeHome(dir string, uid, gid uint32) (isNew bool, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return false, fmt.Errorf("--home: %w", err)
	}
	err = unix.Mkdir(dir, 0o700)
	isNew = err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("--home: make %s: %w", names.Quote(dir), err)
	}
	flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if isNew {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Open(dir, flags, 0)
	if err != nil {
		return false, fmt.Errorf("--home: open %s: %w", names.Quote(dir), err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, fmt.Errorf("--home: %w", err)
	}
	if st.Uid == uid {
		return isNew, unlockHome(fd, &st)
	}
	if isNew && int(st.Uid) == os.Geteuid() {
		if isEmpty, err := giveHome(fd, uid, gid); err != nil || isEmpty {
			return true, err
		}
	}
	return false, homeRefused(dir, "belongs to user %d, and the command runs as user %d (chown it if it is for this command alone)", st.Uid, uid)
}

// unlockHome gives a HOME back its user's permissions: a command can remove these permissions from
// its own HOME.
func unlockHome(fd int, st *unix.Stat_t) error {
	if st.Mode&0o700 == 0o700 {
		return nil
	}
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), st.Mode&0o7777|0o700); err != nil {
		return fmt.Errorf("--home: open it to its user again (mode 0700): %w", err)
	}
	return nil
}

// giveHome gives a new HOME to the user uid and the group gid, if the HOME is empty.
func giveHome(fd int, uid, gid uint32) (isEmpty bool, err error) {
	own, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("--home: %w", err)
	}
	f := os.NewFile(uintptr(own), "home")
	defer f.Close()
	if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
		return false, nil
	}
	if err := f.Chown(int(uid), int(gid)); err != nil {
		return true, fmt.Errorf("--home: %w", err)
	}
	return true, nil
}

// bringHome copies files of the owner's HOME into a kept HOME that lacks them. It leaves out files
// that readSmallFile cannot read. The command may have made links in the kept HOME; os.Root follows
// no link that leads out. If a file cannot be written there, bringHome adds a note. The note says what
// to remove if the command has put something else in the place of the file's parent directory, and
// has the error otherwise.
func bringHome(home string, files []string, uid, gid uint32) (notes []string) {
	if len(files) == 0 {
		return nil
	}
	in, err := os.OpenRoot(home)
	if err != nil {
		return []string{fmt.Sprintf("settings are not copied into the agent's HOME: %v", err)}
	}
	defer in.Close()
	for _, file := range files {
		from, err := ownerFile(file)
		if err != nil {
			continue // there is no HOME to copy from
		}
		text, err := readSmallFile(from)
		if err != nil {
			continue
		}
		if err := bringFile(in, file, text, int(uid), int(gid)); err != nil {
			why := err.Error()
			if at := obstacle(in, file); exists(in, at) {
				why = "something else is in its place; to have it copied at the next start, remove " + names.ShellWord(filepath.Join(home, at))
			}
			notes = append(notes, fmt.Sprintf("%s is not copied into the agent's HOME: %s", names.Quote(from), why))
		}
	}
	return notes
}

// ownerFile returns the path of one of the owner's files, given relative to HOME. It looks in
// $XDG_CONFIG_HOME instead of ~/.config, if the variable is set.
func ownerFile(file string) (string, error) {
	if rest, ok := strings.CutPrefix(file, ".config/"); ok {
		return config.XDG("XDG_CONFIG_HOME", ".config", rest)
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, file), err
}

// obstacle returns the first parent directory of file that does not exist, is not a directory, or
// does not let its owner both write and enter. If there is no such parent, it returns file.
func obstacle(in *os.Root, file string) string {
	for i := range len(file) {
		if file[i] != '/' {
			continue
		}
		if info, err := in.Lstat(file[:i]); err != nil || !info.IsDir() || info.Mode().Perm()&0o300 != 0o300 {
			return file[:i]
		}
	}
	return path.Clean(file)
}

// exists reports whether a directory has something at file, even if that is a link that leads
// nowhere.
func exists(in *os.Root, file string) bool {
	_, err := in.Lstat(file)
	return err == nil
}

// bringFile makes a file and its missing parent directories, all owned by uid and gid. It leaves an
// existing file as it is. If the text cannot be written whole, for instance because the disk is full,
// bringFile removes the file: otherwise the next call would take it for the agent's.
func bringFile(in *os.Root, file, text string, uid, gid int) error {
	for i := range len(file) {
		if file[i] != '/' {
			continue
		}
		switch err := in.Mkdir(file[:i], 0o700); {
		case err == nil:
			if err := in.Lchown(file[:i], uid, gid); err != nil {
				return err
			}
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
	f, err := in.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // it exists, so it now belongs to the agent
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	chownErr := f.Chown(uid, gid)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, in.Remove(file))
	}
	return errors.Join(err, chownErr)
}

// bringSecrets writes files with placeholders into a kept HOME. It replaces such files of an
// earlier run. It leaves a file that the command has written, and adds a note.
func bringSecrets(home string, files []secret.HomeFile, uid, gid uint32) (notes []string) {
	if len(files) == 0 {
		return nil
	}
	in, err := os.OpenRoot(home)
	if err != nil {
		return []string{fmt.Sprintf("placeholders are not written into the kept HOME: %v", err)}
	}
	defer in.Close()
	for _, f := range files {
		old, err := readRegular(in, f.Path)
		if err == nil && secret.IsMade(old) {
			err = in.Remove(f.Path)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = bringFile(in, f.Path, string(f.Data), int(uid), int(gid))
		}
		if err != nil && !exists(in, obstacle(in, f.Path)) {
			notes = append(notes, fmt.Sprintf("placeholders are not written into the kept HOME: %v", err))
			continue
		}
		if now, readErr := readRegular(in, f.Path); err != nil || readErr != nil || now != string(f.Data) {
			notes = append(notes, fmt.Sprintf("the kept HOME has something of its own at %s, without the placeholders of --secret: to have them there at the next start, remove it",
				names.ShellWord(filepath.Join(home, f.Path))))
		}
	}
	return notes
}

// checkKeys returns an error if one of the credential files (secret.KeyPaths) in a kept HOME holds
// the credential of a --secret itself. An earlier run may have copied the credential there.
func (p *runPlan) checkKeys(home string) error {
	if len(p.secrets) == 0 {
		return nil
	}
	in, err := os.OpenRoot(home)
	if err != nil {
		return fmt.Errorf("--home: %w", err)
	}
	defer in.Close()
	for _, file := range secret.KeyPaths() {
		text, err := readRegular(in, file)
		if err != nil {
			continue // there is no such regular file, or it cannot be read
		}
		if s := p.secretIn(text); s != nil {
			return usage(fmt.Errorf("the kept HOME has the credential of --secret %s itself, in %s: remove this file, and the command gets one with a placeholder",
				s.Name, names.ShellWord(filepath.Join(home, file))))
		}
	}
	return nil
}

// readRegular reads at most the first maxSmallFile bytes of a regular file of a HOME.
func readRegular(in *os.Root, file string) (string, error) {
	f, err := in.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	return readStart(f, maxSmallFile)
}
