package cli

// Commands are those of this package.
func Commands(a *App) []Command {
	return []Command{
		{"mount", a.newMountCmd},
		{"run", a.newRunCmd},
		{"serve", a.newServeCmd},
		{"unmount", a.newUnmountCmd},
		{"roots", a.newRootsCmd},
		{"revoke", a.newRevokeCmd},
		{"net", a.newNetCmd},
		{"resume", a.newResumeCmd},
		{"policy", a.newPolicyCmd},
		{"config", a.newConfigCmd},
		{"trash", a.newTrashCmd},
		{"why", a.newWhyCmd},
		{"allow", a.newAllowCmd},
		{"consent", a.newConsentCmd},
		{"status", a.newStatusCmd},
		{"metrics", a.newMetricsCmd},
		{"audit", a.newAuditCmd},
		{"doctor", a.newDoctorCmd},
		{"setup", a.newSetupCmd},
		{"wrap", a.newWrapCmd},
		{"console", a.newConsoleCmd},
		{"top", a.newTopCmd},
	}
}
