package commands

import "github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"

// Commands are those of this package.
func Commands(c *cli.App) cli.Commands {
	a := &app{c}
	return cli.Commands{
		"mount":   a.newMountCmd,
		"run":     a.newRunCmd,
		"serve":   a.newServeCmd,
		"unmount": a.newUnmountCmd,
		"roots":   a.newRootsCmd,
		"revoke":  a.newRevokeCmd,
		"net":     a.newNetCmd,
		"resume":  a.newResumeCmd,
		"trash":   a.newTrashCmd,
		"allow":   a.newAllowCmd,
		"consent": a.newConsentCmd,
		"setup":   a.newSetupCmd,
		"wrap":    a.newWrapCmd,
	}
}
