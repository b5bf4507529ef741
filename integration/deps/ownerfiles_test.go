package deps

import (
	"go/ast"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// rootsfs runs programs and reads files for the owner. Confined programs must not be able to
// write to these files. For each call that runs a program, and each in cmd that opens a file,
// one of these reasons says why no confined program controls the file.
const (
	judged       = "writabledirs.Judge refuses files that confined programs can write"
	ownPlace     = "a place of rootsfs itself, which no root may hold (session.ReservedPaths)"
	systems      = "only the kernel or root controls the file"
	itself       = "this program, by its own descriptor or /proc/self/exe"
	commands     = "the command that run starts, which is confined unless the owner gives --unconfined"
	noDecision   = "rootsfs looks for the file or at it, and decides nothing by it"
	ownersChoice = "a file that the owner names, of a project or a host; rootsfs asks about its contents or judges them"
	ofRoots      = "opened below the descriptor of a root or of a kept HOME, which no path leaves"
)

// ownerFiles are the calls that run a program or open a file, by file and function. Each has the
// reason, and a test that shows the reason: "script NAME" is
// cmd/rootsfs/testdata/script/NAME.txtar, others are "FILE TestName".
var ownerFiles = map[string]struct{ why, test string }{
	"cmd/rootsfs/internal/secret/source.go exec.CommandContext": {judged, "script trust"},
	"cmd/rootsfs/internal/secret/source.go os.OpenFile":         {judged, "script trustfile"},
	"cmd/rootsfs/internal/cli/help.go exec.Command":             {judged, "script trust"},
	"cmd/rootsfs/internal/cli/cmd_fleet.go unix.Exec":           {judged, "cmd/rootsfs/internal/cli/cmd_fleet_test.go TestFleetProgram"},
	"cmd/rootsfs/internal/fleetcli/with.go exec.Command":        {judged, "cmd/rootsfs/internal/cli/cmd_fleet_test.go TestFleetProgram"},
	"cmd/rootsfs/internal/config/load.go os.OpenFile":           {judged, "script trust"},
	"cmd/rootsfs/internal/cli/serve_token.go os.Open":           {judged, "script trust"},
	"cmd/rootsfs/internal/writabledirs/judge.go exec.LookPath":  {judged, "cmd/rootsfs/internal/writabledirs/judge_test.go TestProgram"},
	"cmd/rootsfs/internal/writabledirs/judge.go os.ReadFile":    {judged, "script trust"},
	"cmd/rootsfs/internal/cli/run_git.go os.OpenFile":           {judged, "script trust"},
	"mount/sandbox/bwrap.go exec.LookPath":                      {judged, "mount/sandbox/bwrap_test.go TestProjectsBwrap"},
	// Only root can write to the file and to the directories above it.
	"mount/mountpoint/fuse.go exec.LookPath":         {systems, "mount/mountpoint/fuse_test.go TestHelperInAWritableDirectory"},
	"mount/mountpoint/attach.go exec.LookPath":       {systems, "mount/mountpoint/fuse_test.go TestHelperInAWritableDirectory"},
	"mount/mountpoint/attach.go exec.Command":        {systems, "mount/mountpoint/fuse_test.go TestHelperInAWritableDirectory"},
	"mount/mountpoint/detach.go exec.LookPath":       {systems, "mount/mountpoint/fuse_test.go TestHelperInAWritableDirectory"},
	"mount/mountpoint/detach.go exec.CommandContext": {systems, "mount/mountpoint/fuse_test.go TestHelperInAWritableDirectory"},
	// Most of these have constant paths, in /proc, /sys, /dev and /etc.
	"cmd/rootsfs/internal/cli/doctor_confinement.go os.ReadFile": {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/cli/cmd_doctor.go unix.Openat2":        {noDecision, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/cli/doctor_paths.go os.ReadFile":       {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/cli/flags.go os.Open":                  {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/cli/output.go os.OpenFile":             {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/config/ceiling.go exec.Command":        {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/export/export.go os.ReadFile":          {ownPlace, "cmd/rootsfs/internal/export/export_test.go TestEveryRecordIsHandedOn"},
	"cmd/rootsfs/internal/export/ocsf.go os.OpenFile":            {ownersChoice, "cmd/rootsfs/internal/export/export_test.go TestLines"},
	"cmd/rootsfs/internal/console/access.go os.Open":             {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/network/owner.go os.Open":              {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	"cmd/rootsfs/internal/poller/poller.go os.Open":              {systems, "integration/deps/ownerfiles_test.go TestOwnerFiles"},
	// rootsfs starts its own program again.
	"cmd/rootsfs/internal/cleanup/cleaner.go exec.Cmd":  {itself, "cmd/rootsfs/internal/cleanup/cleanup_test.go TestAwaitsTheEnd"},
	"cmd/rootsfs/internal/cli/mount_daemon.go exec.Cmd": {itself, "script mount"},
	"mount/sandbox/start.go exec.Cmd":                   {itself, "script run"},
	// The command of run and the files that the command needs; then the programs and files of other
	// commands.
	"cmd/rootsfs/internal/cli/run_home.go unix.Open":                {ofRoots, "script runhome"},
	"cmd/rootsfs/internal/cli/run_home.go unix.Openat":              {ofRoots, "script runhome"},
	"cmd/rootsfs/internal/cli/cmd_run.go exec.LookPath":             {noDecision, "script run"},
	"cmd/rootsfs/internal/cli/run_home.go os.OpenRoot":              {ofRoots, "script runfor"},
	"mount/sandbox/interpreter.go exec.LookPath":                    {commands, "script run"},
	"mount/sandbox/internal/initproc/command.go exec.LookPath":      {commands, "script run"},
	"mount/sandbox/internal/initproc/command.go syscall.ForkExec":   {commands, "script run"},
	"cmd/rootsfs/internal/cli/doctor_confinement.go exec.LookPath":  {noDecision, "script doctor"},
	"cmd/rootsfs/internal/cli/cmd_setup.go exec.LookPath":           {noDecision, "script setup"},
	"cmd/rootsfs/internal/cli/wrap_judge.go exec.LookPath":          {noDecision, "cmd/rootsfs/internal/cli/wrap_judge_test.go TestWrapJudges"},
	"cmd/rootsfs/internal/cli/wrap_file.go exec.LookPath":           {judged, "script trust"},
	"cmd/rootsfs/internal/cli/wrap_file.go os.OpenFile":             {ownersChoice, "script wrapsteer"},
	"cmd/rootsfs/internal/project/project.go os.OpenFile":           {noDecision, "cmd/rootsfs/internal/project/project_test.go TestDetect"},
	"cmd/rootsfs/internal/consent/preview.go unix.Open":             {noDecision, "cmd/rootsfs/internal/consent/preview_test.go TestLook"},
	"cmd/rootsfs/internal/consent/preview.go unix.Openat2":          {ofRoots, "cmd/rootsfs/internal/consent/preview_test.go TestLook"},
	"cmd/rootsfs/internal/cleanup/place.go unix.Open":               {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/cleanup/removedeep.go os.OpenRoot":        {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/cli/cmd_mount.go os.OpenFile":             {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/cli/serve_token.go os.OpenFile":           {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/config/save.go os.Open":                   {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/control/sessions.go unix.Open":            {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/control/signal.go os.OpenFile":            {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/control/leasefile.go unix.Openat":         {ownPlace, "cmd/rootsfs/internal/session/lease_test.go TestNoStartWithoutLease"},
	"cmd/rootsfs/internal/control/leasefile.go os.ReadFile":         {systems, "cmd/rootsfs/internal/session/lease_test.go TestNoStartWithoutLease"}, // in /proc
	"cmd/rootsfs/internal/session/lease.go os.ReadFile":             {ownPlace, "cmd/rootsfs/internal/session/lease_test.go TestNoStartWithoutLease"},
	"cmd/rootsfs/internal/session/journal.go os.OpenFile":           {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/writabledirs/writabledirs.go os.OpenFile": {ownPlace, "script badinput"},
	"cmd/rootsfs/internal/fleet/recorddir.go os.OpenFile":           {ownPlace, "cmd/rootsfs/internal/fleet/recordkeeper_test.go TestMachineSendsOnlyItsOwn"}, // or an archive, which is judged
	"cmd/rootsfs/internal/fleet/bridge.go os.OpenFile":              {ownPlace, "script badinput"},                                                            // a directory, to lock it
	"cmd/rootsfs/internal/fleet/agent.go os.OpenFile":               {ownPlace, "script badinput"},                                                            // an empty file, to lock it
	"cmd/rootsfs/internal/atomicfile/atomicfile.go os.Open":         {noDecision, "cmd/rootsfs/internal/atomicfile/atomicfile_test.go TestReplace"},           // a directory, to sync it
	"cmd/rootsfs/internal/fleet/files.go os.OpenFile":               {ownPlace, "script badinput"},                                                            // or the --dir of its server, which is judged
	"cmd/rootsfs/internal/fleet/restored.go os.Open":                {ownPlace, "script badinput"},                                                            // the mark file, to see which file it is
}

// ownerCalls are the functions and types by which a program is run or a file opened.
var ownerCalls = map[string][]string{
	"exec":    {"Command", "CommandContext", "LookPath", "Cmd"},
	"os":      {"Open", "OpenFile", "ReadFile", "OpenRoot", "DirFS", "StartProcess"},
	"unix":    {"Open", "Openat", "Openat2", "Exec"},
	"syscall": {"Open", "Openat", "ForkExec", "Exec", "StartProcess"},
}

// ownerCall returns the name of the function, such as os.Open, by which a node runs a program or
// opens a file. It returns "" if the node does neither. A composite literal of exec.Cmd counts as a
// call. The type exec.Cmd in a field or parameter does not.
func ownerCall(n ast.Node) string {
	var fun ast.Expr
	switch n := n.(type) {
	case *ast.CallExpr:
		fun = n.Fun
	case *ast.CompositeLit:
		fun = n.Type
	case *ast.KeyValueExpr: // a function as a value
		fun = n.Value
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	for _, name := range ownerCalls[identName(x, ok)] {
		if name == sel.Sel.Name {
			return x.Name + "." + name
		}
	}
	return ""
}

func identName(x *ast.Ident, ok bool) string {
	if !ok {
		return ""
	}
	return x.Name
}

// Every program and file that is run or read for the owner has a row, with the reason why
// no confined program controls it, and a test. Outside of cmd, only programs have rows here:
// TestFileCalls checks which packages open files.
func TestOwnerFiles(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range []string{"cmd", "mount", "broker", "vfs", "guard"} {
		for _, s := range sources(t, dir) {
			if strings.Contains(s.rel, "guardtest/") {
				continue
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				call := ownerCall(n)
				runs := strings.HasPrefix(call, "exec.") || strings.HasSuffix(call, "Exec") || strings.HasSuffix(call, "StartProcess")
				if call == "" || dir != "cmd" && !runs {
					return true
				}
				key := s.rel + " " + call
				if used[key] = true; ownerFiles[key].why == "" {
					t.Errorf("%s: %s runs a program or opens a file, and has no row in ownerFiles: let writabledirs.Judge check the file, and add a row with the reason why no confined program controls it", s.fset.Position(n.Pos()), call)
				}
				return true
			})
		}
	}
	for key, row := range ownerFiles {
		if !used[key] {
			t.Errorf("%s is on the list, and nothing calls it", key)
		}
		if err := missingTest(t, row.test); err != "" {
			t.Errorf("%s: %s", key, err)
		}
	}
}

// missingTest returns an error text if there is no test of this name, and "" if there is one.
func missingTest(t *testing.T, name string) string {
	file, function, _ := strings.Cut(name, " ")
	if file == "script" {
		file, function = "cmd/rootsfs/testdata/script/"+function+".txtar", ""
	} else {
		function = "func " + function + "("
	}
	text, err := os.ReadFile(filepath.Join(top(t), file))
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(string(text), function) {
		return file + " has no " + strconv.Quote(function)
	}
	return ""
}
